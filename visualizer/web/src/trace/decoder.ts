// Decodes a device's chunks, in workers where the browser allows them and on this thread where not, and hands them out in
// order.

import { decodeChunk, type Chunk } from './chunk.ts';
import { inflate } from './inflate.ts';
import type { ChunkEntry } from './overview.ts';

export interface DecodeRequest {
  readonly index: number;
  readonly base64: string;
  readonly rows: number;
  readonly begin_ns: number;
}

export type DecodeReply =
  | { readonly index: number; readonly chunk: Chunk; readonly error?: never }
  | { readonly index: number; readonly chunk?: never; readonly error: string };

// The text of the data elements.
export type ReadTag = (tag: number) => string;

const MAX_WORKERS = 4;

// Yields each chunk in order, at most a few ahead of the one that is being used.
export async function* decodeChunks(
  entries: readonly ChunkEntry[],
  readTag: ReadTag,
  worker_source: string,
): AsyncGenerator<Chunk> {
  const pool = makePool(worker_source);
  const ahead = pool.width * 2;
  const started: Promise<Chunk>[] = [];
  try {
    for (let i = 0; i < entries.length; ++i) {
      while (started.length < entries.length && started.length <= i + ahead) {
        const promise = pool.decode(requestFor(started.length, entries[started.length], readTag));
        promise.catch(() => {}); // seen when its turn comes
        started.push(promise);
      }
      const chunk = await started[i];
      delete started[i];
      yield chunk;
    }
  } finally {
    pool.close();
  }
}

function requestFor(index: number, entry: ChunkEntry, readTag: ReadTag): DecodeRequest {
  const base64 = readTag(entry.tag).slice(entry.offset, entry.offset + entry.length);
  if (base64.length !== entry.length) {
    throw new Error('The end of this file is missing: it was not copied or downloaded whole.');
  }
  return { index, base64, rows: entry.rows, begin_ns: entry.begin_ns };
}

interface Pool {
  readonly width: number;
  decode(request: DecodeRequest): Promise<Chunk>;
  close(): void;
}

function makePool(worker_source: string): Pool {
  try {
    return new WorkerPool(worker_source);
  } catch {
    return HERE; // some managed desktops forbid workers of a local page
  }
}

const HERE: Pool = {
  width: 1,
  decode: async (request) => decodeChunk(await inflate(request.base64), request.rows, request.begin_ns),
  close: () => {},
};

class WorkerPool implements Pool {
  readonly width: number;
  private readonly workers: Worker[] = [];
  private readonly waiting = new Map<number, { resolve: (chunk: Chunk) => void; request: DecodeRequest; reject: (error: unknown) => void }>();
  private readonly url: string;
  private next = 0;

  constructor(source: string) {
    this.width = Math.max(1, Math.min(MAX_WORKERS, (navigator.hardwareConcurrency || 2) - 1));
    this.url = URL.createObjectURL(new Blob([source], { type: 'text/javascript' }));
    for (let i = 0; i < this.width; ++i) {
      const worker = new Worker(this.url);
      worker.onmessage = (event: MessageEvent<DecodeReply>) => this.settle(event.data);
      worker.onerror = () => this.giveUpWorkers();
      this.workers.push(worker);
    }
  }

  decode(request: DecodeRequest): Promise<Chunk> {
    if (this.workers.length === 0) return HERE.decode(request);
    return new Promise((resolve, reject) => {
      this.waiting.set(request.index, { resolve, reject, request });
      this.workers[this.next++ % this.workers.length].postMessage(request);
    });
  }

  close(): void {
    for (const worker of this.workers) worker.terminate();
    URL.revokeObjectURL(this.url);
  }

  private settle(reply: DecodeReply): void {
    const waiter = this.waiting.get(reply.index);
    this.waiting.delete(reply.index);
    if (reply.chunk !== undefined) waiter?.resolve(reply.chunk);
    else waiter?.reject(new Error(reply.error));
  }

  // The worker could not start (its errors in decoding come as replies): all its work is done here instead.
  private giveUpWorkers(): void {
    for (const worker of this.workers.splice(0)) worker.terminate();
    for (const [, { request, resolve, reject }] of this.waiting) HERE.decode(request).then(resolve, reject);
    this.waiting.clear();
  }
}
