// Uploads a file with tus-js-client as the environment's ASKED says, and prints where it lies.
"use strict";
const fs = require("node:fs");
const tus = require("tus-js-client");

const { file, abortAfter, ...asked } = JSON.parse(process.env.ASKED);
let aborted = false;

function upload(url) {
  const one = new tus.Upload(fs.createReadStream(file), {
    retryDelays: Array(120).fill(250),
    uploadSize: asked.uploadLengthDeferred ? null : fs.statSync(file).size,
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
