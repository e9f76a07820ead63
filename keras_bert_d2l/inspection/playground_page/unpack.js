"use strict";
// Reads the data that Python has put into the page: gzip in base64.

/** Return the unpacked content of the element with this id, as an ArrayBuffer. */
async function unpack(id) {
  const binary = atob(document.getElementById(id).textContent);
  const packed = new Uint8Array(binary.length);
  for (let i = 0; i < packed.length; i++) packed[i] = binary.charCodeAt(i);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).arrayBuffer();
}

/** Return the page's data, with `weights`: matrices and vectors by name. */
async function readData() {
  const [text, floats, integers] = await Promise.all(["data", "floats", "integers"].map(unpack));
  const data = JSON.parse(new TextDecoder().decode(text));
  data.weights = readWeights(data.shapes, new Float32Array(floats), new Int8Array(integers));
  return data;
}

/**
 * Return the weights by name. A vector is a Float32Array. A matrix, `{rows, columns, values}`, is
 * stored as integers and one scale per row; the scales are between the vectors, in `floats`.
 */
function readWeights(shapes, floats, integers) {
  const weights = {};
  let numFloats = 0, numIntegers = 0;
  for (const [name, [rows, columns]] of Object.entries(shapes)) {
    const vector = floats.subarray(numFloats, numFloats += rows);
    if (columns === undefined) {
      weights[name] = vector;
      continue;
    }
    const values = new Float32Array(rows * columns);
    for (let row = 0, i = 0; row < rows; row++) {
      for (const end = i + columns; i < end; i++) values[i] = vector[row] * integers[numIntegers++];
    }
    weights[name] = { rows, columns, values };
  }
  return weights;
}
