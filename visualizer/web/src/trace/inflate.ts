// Base64 of raw deflate to bytes.

import { bytesFromBase64 } from '../base/base64.ts';

export async function inflate(base64: string): Promise<Uint8Array> {
  const stream = new Blob([bytesFromBase64(base64)]).stream().pipeThrough(new DecompressionStream('deflate-raw'));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}
