// The options that the recorded run had, as the recording holds them.

import { h } from '../base/dom.ts';
import type { Device } from '../trace/overview.ts';

export function optionsView(device: Device): HTMLElement | null {
  const text = pretty(device.options_json);
  if (text === '' || text === '{}') return null;
  return h('section', { class: 'options' }, h('details', {}, h('summary', {}, 'Options of this run'), h('pre', {}, text)));
}

// Indented if it is JSON; as it is otherwise.
function pretty(json: string): string {
  try {
    return JSON.stringify(JSON.parse(json), null, 2);
  } catch {
    return json;
  }
}
