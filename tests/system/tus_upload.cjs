// Uploads a file with tus-js-client, with the options of UPLOAD_OPTIONS, and prints the address of the upload.
"use strict";
const fs = require("node:fs");
const { PassThrough } = require("node:stream");
const tus = require("tus-js-client");

const { file, abortAfter, ...options } = JSON.parse(process.env.UPLOAD_OPTIONS);
let aborted = false;

function upload(url) {
  const opened = fs.createReadStream(file);
  // the length of a stream that is not a file is known only at its end
  const source = options.uploadLengthDeferred ? opened.pipe(new PassThrough()) : opened;
  const uploading = new tus.Upload(source, {
    retryDelays: Array(120).fill(250),
    ...options,
    uploadUrl: url,
    onError(error) {
      console.error(error);
      process.exit(1);
    },
    onSuccess() {
      console.log(JSON.stringify({ url: uploading.url }));
      process.exit(0);
    },
    onChunkComplete(size, accepted) {
      if (abortAfter && !aborted && accepted >= abortAfter) {
        aborted = true;
        uploading.abort().then(() => upload(uploading.url));
      }
    },
  });
  uploading.start();
}

upload(null);
