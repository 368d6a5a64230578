// The overview block of a report: what the page knows before any chunk is decoded. Specified in CONTAINER.md; this is the
// list of its fields.

import { float64FromBase64 } from '../base/base64.ts';

export const REPORT_VERSION = 1;

export interface Overview {
  readonly format: 'offcut-report';
  readonly version: number;
  readonly title: string;
  readonly unreadable: readonly string[]; // recordings that are missing, as messages
  readonly devices: readonly Device[];
}

// One process on one device. Everything from the recording's header is hostile text.
export interface Device {
  readonly file: string;
  readonly process: string; // name of the process's directory
  readonly format_version: number; // of the recording
  readonly offcut_version: string;
  readonly host: string;
  readonly pid: number;
  readonly command_line: string;
  readonly epoch_unix_ms: number; // wall-clock time of time 0; 0 if unknown
  readonly device: number;
  readonly device_name: string;
  readonly device_total_bytes: number;
  readonly options_json: string;

  readonly events: number; // of the recording, of all kinds
  readonly rows: number; // of all chunks
  readonly allocations: number; // likewise
  readonly begin_ns: number; // the first event's time
  readonly end_ns: number; // the last event's time
  readonly counts: Readonly<Record<string, number>>; // events by the name of their kind
  readonly honesty: Honesty;
  readonly live_peak: Peak;
  readonly device_used_peak: Peak;
  readonly steps: Marks; // value: the step's number
  readonly failures: Marks; // value: requested bytes
  readonly failure_reports?: readonly FailureReport[]; // the latest, in order; left out if there are none
  readonly drops: Marks; // value: how many events
  readonly series: Series;
  readonly pools: readonly Pool[];
  readonly peak: ReservedPeak;
  readonly chunks: readonly ChunkEntry[];
}

export interface Honesty {
  readonly dropped_events: number;
  readonly inconsistencies: number; // events that contradict those before them
  readonly implausible_events: number; // events with numbers that cannot be true; left out
  readonly closed: boolean; // the recorder closed the file itself
  readonly problem: string; // why reading ended early; '' if it did not
}

export interface Peak {
  readonly bytes: number;
  readonly time_ns: number; // when it was first reached
}

// Why a request failed, as the allocator wrote it then: lines of text.
export interface FailureReport {
  readonly time_ns: number;
  readonly text: string;
}

export interface Marks {
  readonly time_ns: Column;
  readonly value: Column;
}

// Slice i covers slice_ns from begin_ns + i * slice_ns on; the last may be shorter.
export interface Series {
  readonly begin_ns: number;
  readonly slice_ns: number;
  readonly live_least: Column;
  readonly live_most: Column;
  readonly reserved_least: Column;
  readonly reserved_most: Column;
  readonly device_used_least: Column;
  readonly device_used_most: Column;
}

export interface Pool {
  readonly index: number;
  readonly stream: number;
  readonly private_pool_id: string; // decimal; '0' for a default pool
}

// Of the instants at which reserved is highest, the one with the most live bytes.
export interface ReservedPeak {
  readonly time_ns: number;
  readonly rows: number; // of the device, up to and including that instant
  readonly accounting: Accounting;
  readonly live_blocks: number;
  readonly first_blocks: FirstBlocks; // the largest of them
}

// allocator/events/accounting.h
export interface Accounting {
  readonly live_bytes: number;
  readonly rounding_bytes: number;
  readonly pending_bytes: number;
  readonly private_pools_free_bytes: number;
  readonly pinned_bytes: number;
  readonly idle_bytes: number;
  readonly driver_pool_free_bytes: number;
  readonly reserved_bytes: number;
  readonly outside_bytes: number;
  readonly device_used_bytes: number;
  readonly foreign_bytes?: number; // beside the sum; left out if there is none
}

export interface FirstBlocks {
  readonly address: Column;
  readonly requested_bytes: Column;
  readonly block_bytes: Column;
  readonly allocated_ns: Column;
  readonly pool: Column;
}

export interface ChunkEntry {
  readonly tag: number; // which of the data elements
  readonly offset: number; // in characters
  readonly length: number;
  readonly rows: number;
  readonly allocations: number;
  readonly first_allocation: number;
  readonly begin_ns: number;
  readonly end_ns: number;
  readonly live_before: number;
  readonly reserved_before: number;
  readonly device_used_before: number;
}

// Base64 of float64; see readColumn.
export type Column = string & { readonly column?: never };

export function readColumn(column: Column): Float64Array {
  return float64FromBase64(column);
}

// Throws an Error that a person can act on.
export function parseOverview(json: string): Overview {
  let overview: Partial<Overview>;
  try {
    overview = JSON.parse(json) as Partial<Overview>;
  } catch (error) {
    throw new Error(`The overview of this report cannot be read (${String(error)}). Was the file cut short?`);
  }
  if (overview.format !== 'offcut-report' || !Array.isArray(overview.devices)) {
    throw new Error('This page holds no Offcut report.');
  }
  if (overview.version !== REPORT_VERSION) {
    throw new Error(
      `This report has version ${String(overview.version)}; its viewer reads version ${REPORT_VERSION}. ` +
        'Make it again with `offcut report`.',
    );
  }
  return overview as Overview;
}
