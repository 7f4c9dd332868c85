// What sharp.py loads: thumbnails of pictures that it has made at its start. sharp would use one thread of libvips for a
// picture under glibc and all processors under jemalloc, which it knows by `mallctl`; here it is two under each.
const readline = require("node:readline");
const sharp = require("sharp");

sharp.concurrency(2);
const AT_ONCE = 4, PICTURES = 12;
let state = 1;
const below = (n) => ((state = (state * 1103515245 + 12345) % 2147483648) >> 8) % n;

const picture = (i) => sharp({ create: { width: 300 + i * 90, height: 200 + i * 70, channels: 3, background: "#888",
  noise: { type: "gaussian", mean: 128, sigma: 40 } } }).jpeg().toBuffer();

async function client(pictures) {
  for (let i = 0; i < 5; i++) {
    const size = 50 + below(400);
    const made = sharp(pictures[below(PICTURES)]).rotate(90).resize(size, size, { fit: "cover" }).sharpen();
    await (below(2) ? made.jpeg() : made.png()).toBuffer();
  }
}

async function main() {
  const pictures = [];
  for (let i = 0; i < PICTURES; i++) pictures.push(await picture(i));
  for await (const line of readline.createInterface({ input: process.stdin })) {
    state = Number(line) + 1;
    await Promise.all(Array.from({ length: AT_ONCE }, () => client(pictures)));
    console.log("served");
  }
}
main();
