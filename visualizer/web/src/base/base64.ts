// Base64 to bytes, by the browser's own decoder where it has one.

interface FromBase64 {
  fromBase64?: (text: string) => Uint8Array<ArrayBuffer>;
}

export function bytesFromBase64(text: string): Uint8Array<ArrayBuffer> {
  const native = (Uint8Array as unknown as FromBase64).fromBase64;
  if (native !== undefined) return native.call(Uint8Array, text);
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; ++i) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

export function float64FromBase64(text: string): Float64Array {
  const bytes = bytesFromBase64(text);
  if (bytes.length % 8 !== 0) throw new Error(`a column of float64 has ${bytes.length} bytes`);
  return new Float64Array(bytes.buffer);
}
