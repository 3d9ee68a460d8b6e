/**
 * A picture of a part of the page: the part is cloned with its styles into an SVG, which is drawn on a canvas. Nothing is
 * fetched: canvases are copied as images, and the page's styles are all within it.
 */

const SCALE = 2;
const TALLEST = 12_000;
/** Of the title: a line, and what lies above and below it. */
const LINE = 18;
const AROUND = 12;

/** What stands above the picture: a title, and elements that explain its colours. */
export interface Caption {
  title: string;
  legends: readonly HTMLElement[];
}

/** PNG of `element` as it looks now, without scroll bars; what scrolls and carries `data-picture="whole"` is shown in full. */
export async function picture(element: HTMLElement, caption: Caption): Promise<Blob> {
  const width = element.clientWidth;
  const height = Math.min(fullHeight(element) + captionHeight(caption, width), TALLEST);
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(markup(element, caption, width, height))}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  canvas.width = width * SCALE;
  canvas.height = height * SCALE;
  const pen = canvas.getContext("2d");
  if (!pen) throw new Error("this browser gives no canvas of that size");
  pen.scale(SCALE, SCALE);
  pen.drawImage(image, 0, 0);
  return new Promise((resolve, reject) => {
    canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("the picture could not be made"))), "image/png");
  });
}

function fullHeight(element: HTMLElement): number {
  const whole = [element, ...element.querySelectorAll<HTMLElement>('[data-picture="whole"]')];
  return element.clientHeight + Math.max(...whole.map((one) => one.scrollHeight - one.clientHeight));
}

function captionHeight(caption: Caption, width: number): number {
  const heights = caption.legends.map((legend) => legend.offsetHeight * scaleOf(legend, width));
  return heights.reduce((sum, height) => sum + height, titleHeight(caption, width));
}

/** What lies above the view may be wider, beside a panel: it is made as much smaller. */
function scaleOf(legend: HTMLElement, width: number): number {
  return Math.min(width / Math.max(legend.offsetWidth, 1), 1);
}

function fitted(legend: HTMLElement, width: number): HTMLElement {
  const scale = scaleOf(legend, width);
  const copy = clone(legend);
  if (scale === 1) return copy;
  const room = document.createElement("div");
  room.style.cssText = `flex:none;height:${legend.offsetHeight * scale}px;`;
  copy.style.cssText += `;width:${legend.offsetWidth}px;transform:scale(${scale});transform-origin:0 0;`;
  room.append(copy);
  return room;
}

/** As many lines as the title needs: measured with some room, for words are not broken. */
function titleHeight({ title }: Caption, width: number): number {
  const pen = document.createElement("canvas").getContext("2d");
  if (!pen) return LINE + AROUND;
  pen.font = getComputedStyle(document.body).font;
  const lines = Math.ceil((1.05 * pen.measureText(title).width) / Math.max(width - 24, 1));
  return (lines > 1 ? lines + 1 : 1) * LINE + AROUND;
}

function markup(element: HTMLElement, caption: Caption, width: number, height: number): string {
  const root = document.documentElement;
  const look = getComputedStyle(document.body);
  const frame = document.createElement("div");
  frame.setAttribute("xmlns", "http://www.w3.org/1999/xhtml");
  frame.style.cssText = `width:${width}px;height:${height}px;overflow:hidden;display:flex;flex-direction:column;box-sizing:border-box;`;
  frame.style.background = look.backgroundColor;
  frame.style.color = look.color;
  frame.style.font = look.font;
  const head = document.createElement("div");
  head.style.cssText = `flex:none;height:${titleHeight(caption, width)}px;padding:6px 12px;overflow:hidden;line-height:${LINE}px;overflow-wrap:anywhere;opacity:.8;`;
  head.textContent = caption.title;
  const copy = clone(element);
  copy.style.cssText += `;width:${width}px;height:${height - captionHeight(caption, width)}px;flex:none;overflow:hidden;`;
  frame.append(styles(), head, ...caption.legends.map((legend) => fitted(legend, width)), copy);
  const body = new XMLSerializer().serializeToString(frame);
  const attributes = `xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}"`;
  const theme = `data-theme="${root.dataset["theme"] === "dark" ? "dark" : "light"}"`;
  const variables = root.style.cssText.replaceAll("&", "&amp;").replaceAll('"', "&quot;").replaceAll("<", "&lt;");
  return legible(
    `<svg ${attributes} ${theme} style="${variables}"><foreignObject width="100%" height="100%">${body}</foreignObject></svg>`,
  );
}

function clone(element: HTMLElement): HTMLElement {
  const copy = element.cloneNode(true) as HTMLElement;
  const canvases = copy.querySelectorAll("canvas");
  element.querySelectorAll("canvas").forEach((canvas, index) => {
    const image = document.createElement("img");
    if (canvas.width > 0 && canvas.height > 0) image.src = canvas.toDataURL();
    image.className = canvas.className;
    image.style.cssText = `${canvas.style.cssText};width:${canvas.clientWidth}px;height:${canvas.clientHeight}px;display:block;`;
    canvases[index].replaceWith(image);
  });
  const chosen = element.querySelectorAll("select");
  copy.querySelectorAll("select").forEach((select, index) => {
    [...select.options].forEach((option, at) => {
      option.toggleAttribute("selected", at === chosen[index].selectedIndex);
    });
  });
  const typed = element.querySelectorAll("input");
  copy.querySelectorAll("input").forEach((input, index) => {
    input.setAttribute("value", typed[index].value);
  });
  for (const whole of copy.querySelectorAll<HTMLElement>('[data-picture="whole"]')) {
    whole.style.cssText += ";overflow:visible;height:auto;flex:none;";
  }
  for (const hidden of copy.querySelectorAll('[data-picture="none"]')) hidden.remove();
  return copy;
}

function styles(): HTMLStyleElement {
  const style = document.createElement("style");
  const texts: string[] = [];
  for (const sheet of document.styleSheets) {
    try {
      for (const rule of sheet.cssRules) texts.push(rule.cssText);
    } catch {
      // A style sheet of an extension of the browser: not ours.
    }
  }
  texts.push("* { scrollbar-width: none !important; }", "::-webkit-scrollbar { display: none; }");
  style.textContent = texts.join("\n");
  return style;
}

/** Characters that XML forbids even as references would spoil the whole picture: ids of a trace may hold them. */
function legible(text: string): string {
  return text.replace(/[\p{Cc}\p{Cs}\uFFFE\uFFFF]/gu, (char) => ("\t\n\r".includes(char) ? char : "\uFFFD"));
}
