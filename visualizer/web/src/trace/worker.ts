// The worker's side of decoder.ts: one chunk in, its columns out.

import { buffersOf, decodeChunk } from './chunk.ts';
import type { DecodeReply, DecodeRequest } from './decoder.ts';
import { inflate } from './inflate.ts';

interface WorkerScope {
  onmessage: ((event: MessageEvent<DecodeRequest>) => void) | null;
  postMessage(reply: DecodeReply, transfer?: Transferable[]): void;
}

const scope = self as unknown as WorkerScope;

scope.onmessage = async (event) => {
  const { index, base64, rows, begin_ns } = event.data;
  try {
    const chunk = decodeChunk(await inflate(base64), rows, begin_ns);
    scope.postMessage({ index, chunk }, buffersOf(chunk));
  } catch (error) {
    scope.postMessage({ index, error: error instanceof Error ? error.message : String(error) });
  }
};
