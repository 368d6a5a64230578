// Recordings and their reports, made once per test run by the programs of the build tree.

import { execFileSync } from 'node:child_process';
import { mkdtempSync, mkdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const BUILD = resolve(process.env['OFFCUT_TEST_BUILD_DIR'] ?? join(ROOT, 'build/release'));
const OFFCUT = join(BUILD, 'package/offcut/bin/offcut');

// What the page must show, by another way: `offcut inspect --json`.
export interface Inspected {
  readonly devices: readonly {
    readonly device: number;
    readonly events: number;
    readonly allocations: number;
    readonly peak_live_bytes: number;
    readonly peak_reserved_bytes: number;
    readonly accounting: Readonly<Record<string, number>>;
  }[];
}

export class Reports {
  private readonly folder = mkdtempSync(join(tmpdir(), 'offcut-browser-'));

  constructor() {
    mkdirSync(join(this.folder, 'recordings'));
    execFileSync(join(BUILD, 'tests/make_recordings'), [join(this.folder, 'recordings')]);
  }

  recording(name: string): string {
    return join(this.folder, 'recordings', name);
  }

  make(name: string, title = name): string {
    const path = join(this.folder, `${name}.html`);
    execFileSync(OFFCUT, ['report', this.recording(name), '-o', path, '--title', title]);
    return path;
  }

  inspect(name: string): Inspected {
    return JSON.parse(execFileSync(OFFCUT, ['inspect', '--json', this.recording(name)], { encoding: 'utf8' })) as Inspected;
  }

  remove(): void {
    rmSync(this.folder, { recursive: true });
  }
}
