// A chunk's bytes to columns, as CONTAINER.md specifies them. Pure; runs in workers and in tests.

// Numbers of allocator/events/events.def.
export const KIND = {
  BlockAllocated: 3,
  BlockFreed: 4,
  BlockFreePended: 5,
  PendingFreeFinished: 6,
  GranuleCreated: 10,
  GranuleReleased: 13,
  DeviceUsedSampled: 14,
} as const;

export const BLOCK_UNIT = 512;

export interface Chunk {
  readonly kinds: Uint8Array<ArrayBuffer>; // per row
  readonly times_ns: Float64Array<ArrayBuffer>; // per row
  readonly addresses: Float64Array<ArrayBuffer>; // per allocation, as are the next three
  readonly requested_bytes: Float64Array<ArrayBuffer>;
  readonly block_units: Uint32Array<ArrayBuffer>;
  readonly pools: Uint16Array<ArrayBuffer>;
  readonly ages: Float64Array<ArrayBuffer>; // per free: how many allocations ago its block was allocated
  readonly values: Float64Array<ArrayBuffer>; // per row of any other kind
}

export function decodeChunk(bytes: Uint8Array, rows: number, begin_ns: number): Chunk {
  const reader = new ColumnReader(bytes);
  const kinds = Uint8Array.from(reader.read(rows));
  let allocations = 0;
  let frees = 0;
  for (const kind of kinds) {
    if (kind === KIND.BlockAllocated) ++allocations;
    else if (kind >= KIND.BlockFreed && kind <= KIND.PendingFreeFinished) ++frees;
  }
  const times_ns = accumulate(reader.read(rows), begin_ns);
  const addresses = reader.read(allocations);
  undoZigZag(addresses);
  accumulate(addresses, 0);
  for (let i = 0; i < allocations; ++i) addresses[i] *= BLOCK_UNIT;
  const chunk = {
    kinds,
    times_ns,
    addresses,
    requested_bytes: reader.read(allocations),
    block_units: Uint32Array.from(reader.read(allocations)),
    pools: Uint16Array.from(reader.read(allocations)),
    ages: reader.read(frees),
    values: reader.read(rows - allocations - frees),
  };
  reader.expectEnd();
  return chunk;
}

// The buffers to hand over when a chunk is posted to another thread.
export function buffersOf(chunk: Chunk): ArrayBuffer[] {
  return Object.values(chunk).map((column: Float64Array<ArrayBuffer>) => column.buffer);
}

class ColumnReader {
  private readonly bytes: Uint8Array;
  private position = 0;

  constructor(bytes: Uint8Array) {
    this.bytes = bytes;
  }

  read(count: number): Float64Array<ArrayBuffer> {
    const width = this.bytes[this.position++];
    if (!(width <= 7) || this.position + width * count > this.bytes.length) {
      throw new Error(`a chunk is damaged: a column of ${count} values at byte ${this.position - 1} does not fit`);
    }
    const values = new Float64Array(count);
    let scale = 1;
    for (let plane = 0; plane < width; ++plane) {
      const start = this.position;
      for (let i = 0; i < count; ++i) values[i] += this.bytes[start + i] * scale;
      this.position += count;
      scale *= 256;
    }
    return values;
  }

  expectEnd(): void {
    if (this.position !== this.bytes.length) {
      throw new Error(`a chunk is damaged: ${this.bytes.length - this.position} bytes too many`);
    }
  }
}

function accumulate(values: Float64Array<ArrayBuffer>, start: number): Float64Array<ArrayBuffer> {
  let sum = start;
  for (let i = 0; i < values.length; ++i) {
    sum += values[i];
    values[i] = sum;
  }
  return values;
}

function undoZigZag(values: Float64Array): void {
  for (let i = 0; i < values.length; ++i) {
    const value = values[i];
    values[i] = value % 2 === 0 ? value / 2 : -(value + 1) / 2;
  }
}
