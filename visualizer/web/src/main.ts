// The page: paints the overview at once, then decodes the device that is shown and puts the exact data in its place.

import { byId, h, replaceChildren } from './base/dom.ts';
import { plural } from './base/format.ts';
import { allBlocks, firstBlocks } from './model/blocks.ts';
import { OverviewLevels } from './model/levels.ts';
import { RecordingBuilder, type Recording } from './model/recording.ts';
import { StepIndex } from './model/step_index.ts';
import { decodeChunks } from './trace/decoder.ts';
import { parseOverview, type Device, type Overview } from './trace/overview.ts';
import { accountingView } from './views/accounting.ts';
import { BlocksView } from './views/blocks.ts';
import { failuresView } from './views/failures.ts';
import { bannerView, headerView } from './views/header.ts';
import { optionsView } from './views/options.ts';
import { tilesView } from './views/tiles.ts';
import { TimelineView } from './views/timeline.ts';

// The program of trace/worker.ts, put here by build.mjs.
declare const WORKER_SOURCE: string;

class Page {
  private readonly overview: Overview;
  private readonly recordings = new Map<number, Promise<Recording>>();
  private data_is_there = document.readyState !== 'loading';
  private shown = 0;

  constructor(overview: Overview) {
    this.overview = overview;
    document.title = `${overview.title || 'Memory report'} \u2013 Offcut`;
    replaceChildren(byId('footer'), h('p', {}, 'Made by ', h('code', {}, 'offcut report'), '. Everything that this page shows is in this one file; it makes no network requests.'));
  }

  show(index: number): void {
    this.shown = index;
    const device = this.overview.devices[index];
    replaceChildren(byId('header'), ...headerView(this.overview, index, (chosen) => this.show(chosen)));
    replaceChildren(byId('banner'), ...bannerView(this.overview, device));
    const steps = new StepIndex(device);
    const timeline = new TimelineView(device, steps, new OverviewLevels(device));
    const blocks = new BlocksView(device, steps);
    replaceChildren(byId('main'), tilesView(device, steps), timeline.element, accountingView(device, steps), ...failuresView(device, steps), blocks.element, optionsView(device));
    timeline.draw();
    blocks.show(firstBlocks(device));
    document.body.dataset['state'] = 'overview';
    performance.mark('offcut:overview');
    if (this.data_is_there) void this.refine(index, device, timeline, blocks);
    else {
      document.addEventListener('DOMContentLoaded', () => {
        this.data_is_there = true;
        if (this.shown === index) void this.refine(index, device, timeline, blocks);
      }, { once: true });
    }
  }

  private async refine(index: number, device: Device, timeline: TimelineView, blocks: BlocksView): Promise<void> {
    timeline.setState(device.rows > 0 ? `reading ${plural(device.rows, 'event')}\u2026` : '');
    try {
      const recording = await this.recordingOf(index);
      if (this.shown !== index) return;
      timeline.setLevels(recording.levels);
      blocks.show(allBlocks(device, recording));
      document.body.dataset['state'] = 'exact';
      performance.mark('offcut:exact');
    } catch (error) {
      timeline.setState('coarse: the events could not be read');
      blocks.fail();
      byId('banner').append(fatal(error));
      document.body.dataset['state'] = 'failed';
    }
  }

  private recordingOf(index: number): Promise<Recording> {
    const known = this.recordings.get(index);
    if (known !== undefined) return known;
    const recording = readRecording(this.overview.devices[index]);
    this.recordings.set(index, recording);
    return recording;
  }
}

async function readRecording(device: Device): Promise<Recording> {
  const tags = document.querySelectorAll<HTMLScriptElement>('script.offcut-data');
  const texts = new Map<number, string>();
  const readTag = (tag: number): string => {
    const text = texts.get(tag) ?? tags[tag]?.textContent ?? '';
    texts.set(tag, text);
    return text;
  };
  const builder = new RecordingBuilder(device.chunks);
  for await (const chunk of decodeChunks(device.chunks, readTag, WORKER_SOURCE)) builder.add(chunk);
  return builder.finish();
}

function fatal(error: unknown): HTMLElement {
  return h('p', { class: 'fatal', role: 'alert' }, error instanceof Error ? error.message : String(error));
}

function start(): void {
  const text = document.getElementById('offcut-overview')?.textContent;
  if (text === null || text === undefined) {
    replaceChildren(byId('main'), h('p', { class: 'empty' }, 'This is the empty viewer. `offcut report RECORDING -o FILE.html` puts a recording into it.'));
    return;
  }
  try {
    const overview = parseOverview(text);
    if (overview.devices.length === 0) throw new Error('This report holds no recording.');
    new Page(overview).show(largestOf(overview.devices));
  } catch (error) {
    replaceChildren(byId('main'), fatal(error));
    document.body.dataset['state'] = 'failed';
    throw error;
  }
}

// The device that reserved most is the one to look at first.
function largestOf(devices: readonly Device[]): number {
  return devices.reduce((best, device, i) => (device.peak.accounting.reserved_bytes > devices[best].peak.accounting.reserved_bytes ? i : best), 0);
}

start();
