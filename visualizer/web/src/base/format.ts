// Numbers as people read them. Pure; the same value always reads the same, whatever the locale.

export const KIB = 1024;
export const MIB = 1024 * KIB;
export const GIB = 1024 * MIB;

export interface ByteUnit {
  readonly name: string;
  readonly bytes: number;
}

const BYTE_UNITS: readonly ByteUnit[] = [
  { name: 'GiB', bytes: GIB },
  { name: 'MiB', bytes: MIB },
  { name: 'KiB', bytes: KIB },
  { name: 'B', bytes: 1 },
];

// The largest unit in which `bytes` is at least 1.
export function byteUnitFor(bytes: number): ByteUnit {
  const size = Math.abs(bytes);
  return BYTE_UNITS.find((unit) => size >= unit.bytes) ?? { name: 'B', bytes: 1 };
}

// Four significant digits, or fewer where those say it exactly: "38.65 GiB", "29.00 GiB", "560 MiB", "0 B".
export function formatBytes(bytes: number): string {
  const unit = byteUnitFor(bytes);
  const value = bytes / unit.bytes;
  if (unit.bytes === 1) return `${groupDigits(value)} B`;
  const text = value.toFixed(Math.abs(value) >= 100 ? 1 : Math.abs(value) >= 10 ? 2 : 3);
  return `${minus(Number(text) === value ? String(value) : text)} ${unit.name}`;
}

// Always four significant digits, so that numbers in a column are equally long.
export function formatBytesEvenly(bytes: number): string {
  const unit = byteUnitFor(bytes);
  if (unit.bytes === 1) return formatBytes(bytes);
  const value = bytes / unit.bytes;
  return `${minus(value.toFixed(Math.abs(value) >= 1000 ? 0 : Math.abs(value) >= 100 ? 1 : Math.abs(value) >= 10 ? 2 : 3))} ${unit.name}`;
}

// In a given unit with three decimals, for columns that are read downwards.
export function formatBytesIn(bytes: number, unit: ByteUnit): string {
  return minus((bytes / unit.bytes).toFixed(unit.bytes === 1 ? 0 : 3));
}

// "29,004,812,288"
export function groupDigits(value: number): string {
  const digits = Math.round(Math.abs(value)).toString().replace(/\B(?=(\d{3})+$)/g, ',');
  return value < 0 ? `\u2212${digits}` : digits;
}

export function formatPercent(part: number, whole: number): string {
  if (whole === 0) return part === 0 ? '0 %' : '\u2013';
  const percent = (100 * part) / whole;
  if (percent !== 0 && Math.abs(percent) < 0.1) return percent > 0 ? '< 0.1 %' : '> \u22120.1 %';
  return `${minus(percent.toFixed(1))} %`;
}

// A length of time: "830 ns", "12.5 ms", "16.3 s", "3 min 20 s", "2 h 5 min", "3 d 4 h".
export function formatDuration(ns: number): string {
  const seconds = ns / 1e9;
  if (ns < 1e3) return `${Math.round(ns)} ns`;
  if (ns < 1e6) return `${trim(ns / 1e3)} \u00b5s`;
  if (ns < 1e9) return `${trim(ns / 1e6)} ms`;
  if (seconds < 59.95) return `${trim(seconds)} s`;
  const whole = Math.round(seconds);
  if (whole < 3600) return join(Math.floor(whole / 60), 'min', whole % 60, 's');
  const minutes = Math.round(seconds / 60);
  if (minutes < 1440) return join(Math.floor(minutes / 60), 'h', minutes % 60, 'min');
  const hours = Math.round(seconds / 3600);
  return join(Math.floor(hours / 24), 'd', hours % 24, 'h');
}

// A point in time, to the nanosecond that `step_ns` makes visible: "12.345 s", "3:12.5", "1:03:12".
export function formatTime(ns: number, step_ns: number): string {
  const decimals = Math.max(0, Math.min(9, Math.ceil(-Math.log10(step_ns / 1e9) - 1e-9)));
  const units = 10 ** decimals;
  const rounded = Math.round((Math.abs(ns) / 1e9) * units) / units;
  const sign = ns < 0 && rounded > 0 ? '\u2212' : '';
  if (rounded < 60) return `${sign}${rounded.toFixed(decimals)} s`;
  const minutes = Math.floor(rounded / 60);
  const seconds = (rounded - minutes * 60).toFixed(decimals).padStart(decimals ? decimals + 3 : 2, '0');
  if (minutes < 60) return `${sign}${minutes}:${seconds}`;
  return `${sign}${Math.floor(minutes / 60)}:${String(minutes % 60).padStart(2, '0')}:${seconds}`;
}

// "2026-09-21 14:13:20 UTC"
export function formatDate(unix_ms: number): string {
  const date = new Date(unix_ms);
  if (Number.isNaN(date.getTime())) return '';
  return `${date.toISOString().slice(0, 19).replace('T', ' ')} UTC`;
}

export function formatAddress(address: number): string {
  return `0x${address.toString(16).padStart(12, '0')}`;
}

export function plural(count: number, one: string, many = `${one}s`): string {
  return `${groupDigits(count)} ${count === 1 ? one : many}`;
}

function trim(value: number): string {
  return value.toFixed(value >= 100 ? 0 : value >= 10 ? 1 : 2).replace(/(\.\d*?)0+$/, '$1').replace(/\.$/, '');
}

function join(large: number, large_name: string, small: number, small_name: string): string {
  return small === 0 ? `${large} ${large_name}` : `${large} ${large_name} ${small} ${small_name}`;
}

function minus(text: string): string {
  return text.replace('-', '\u2212');
}
