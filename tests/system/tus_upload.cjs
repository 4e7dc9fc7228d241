// Uploads a file with tus-js-client as the environment's ASKED says, and prints where it lies.
"use strict";
const fs = require("node:fs");
const { PassThrough } = require("node:stream");
const tus = require("tus-js-client");

const { file, abortAfter, ...asked } = JSON.parse(process.env.ASKED);
let aborted = false;

function upload(url) {
  const opened = fs.createReadStream(file);
  // a stream that is no file tells its length only by its end
  const source = asked.uploadLengthDeferred ? opened.pipe(new PassThrough()) : opened;
  const one = new tus.Upload(source, {
    retryDelays: Array(120).fill(250),
    ...asked,
    uploadUrl: url,
    onError(error) {
      console.error(error);
      process.exit(1);
    },
    onSuccess() {
      console.log(JSON.stringify({ url: one.url }));
      process.exit(0);
    },
    onChunkComplete(size, accepted) {
      if (abortAfter && !aborted && accepted >= abortAfter) {
        aborted = true;
        one.abort().then(() => upload(one.url));
      }
    },
  });
  one.start();
}

upload(null);
