// Data of the page: JSON, compressed by zlib, in base64.

async function decode(id) {
  const text = document.getElementById(id).textContent;
  const compressed = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const stream = new Blob([compressed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).json();
}
