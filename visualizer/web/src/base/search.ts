// Binary search in sorted columns.

// How many of values[0 .. length) are at most `bound`.
export function countAtMost(values: ArrayLike<number>, bound: number, length = values.length): number {
  let low = 0;
  let high = length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (values[middle] <= bound) low = middle + 1;
    else high = middle;
  }
  return low;
}
