// A canvas that is as sharp as the screen: drawn in CSS pixels, backed by device pixels.

export class Canvas {
  readonly element: HTMLCanvasElement;
  width = 0; // CSS pixels
  height = 0;
  scale = 1; // device pixels per CSS pixel

  constructor(element: HTMLCanvasElement) {
    this.element = element;
  }

  // Takes over the element's present size; returns whether there is anything to draw on.
  resize(): boolean {
    const { width, height } = this.element.getBoundingClientRect();
    this.width = width;
    this.height = height;
    this.scale = window.devicePixelRatio || 1;
    const backing_width = Math.round(width * this.scale);
    const backing_height = Math.round(height * this.scale);
    if (this.element.width !== backing_width) this.element.width = backing_width;
    if (this.element.height !== backing_height) this.element.height = backing_height;
    return backing_width > 0 && backing_height > 0;
  }

  // Cleared, in CSS pixels.
  begin(): CanvasRenderingContext2D {
    const context = this.element.getContext('2d');
    if (context === null) throw new Error('this browser gives the page no canvas to draw on');
    context.setTransform(this.scale, 0, 0, this.scale, 0, 0);
    context.clearRect(0, 0, this.width, this.height);
    return context;
  }

  // The middle of the device pixel nearest to `position`, so that a line of one device pixel is sharp.
  crisp(position: number): number {
    return (Math.round(position * this.scale - 0.5) + 0.5) / this.scale;
  }
}
