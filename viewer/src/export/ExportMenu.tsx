import { useEffect, useRef, useState } from "preact/hooks";
import { exportCsv, exportJsonl, rowOfStep } from "../data";
import type { Range } from "../data/model/columns";
import type { TraceStore } from "../data/model/trace";
import { count, plural } from "../format";
import { lanesInView, lanesShown } from "../requests/window";
import { TAB_TITLES, type Tab } from "../state/hash";
import { askWhatLacks, lacks } from "../state/lacks";
import { focus, showTab } from "../state/moves";
import { announce, filterText, matches, scope, tab } from "../state/store";
import { cut } from "../text";
import { rowsInView } from "../timeline/frame";
import { download } from "./download";
import { annotationsFromFile, isServed, notebookOf, saveToFile } from "./notebook";
import { picture } from "./picture";
import { exportRanges, rowsIn } from "./ranges";
import { fromServer, notServed, SERVER_FORMATS } from "./serverFormats";
import "./export.css";

interface ExportMenuProps {
  store: TraceStore;
}

/** What is on the page, to take away: a picture, a table, the lines themselves, the annotations. */
export function ExportMenu({ store }: ExportMenuProps) {
  const [open, setOpen] = useState(false);
  const [busy, setBusy] = useState<{ what: string; stop: AbortController } | null>(null);
  const [failed, setFailed] = useState("");
  const box = useRef<HTMLDivElement>(null);
  const opener = useRef<HTMLButtonElement>(null);
  useOutside(box, open, () => setOpen(false));
  useEffect(() => {
    if (open && isServed(store)) void askWhatLacks();
  }, [open, store]);
  const ranges = exportRanges(matches.value.rows, scope.value);
  const rows = rowsIn(ranges);
  const run = async (what: string, name: string, make: (signal: AbortSignal) => Promise<Blob>) => {
    const stop = new AbortController();
    setBusy({ what, stop });
    setFailed("");
    try {
      download(await make(stop.signal), name);
      announce(`${what}: saved`);
      setOpen(false);
      // What was chosen is gone: the focus returns to where it came from, unless it has been moved meanwhile.
      const { activeElement } = document;
      if (activeElement === document.body || box.current?.contains(activeElement)) opener.current?.focus();
    } catch (error) {
      if (!stop.signal.aborted) setFailed(`${what}: ${error instanceof Error ? error.message : String(error)}`);
    }
    setBusy(null);
  };
  const part = rows === store.rows ? "" : `.${matches.value.rows ? "filtered-" : ""}${span(store, ranges)}`;
  const onKeyDown = (event: KeyboardEvent) => {
    if (!open) return;
    if (event.key === "Escape") {
      setOpen(false);
      opener.current?.focus();
    } else if (!moveFocus(box.current, event)) return;
    event.preventDefault();
    event.stopPropagation();
  };
  return (
    <div class="export own-keys" ref={box} data-picture="none">
      <button
        ref={opener}
        type="button"
        aria-expanded={open}
        aria-haspopup="dialog"
        onClick={() => setOpen(!open)}
        onKeyDown={onKeyDown}
      >
        Export <span aria-hidden="true">▾</span>
      </button>
      {open && (
        <div class="export-menu" role="dialog" aria-label="Export" onKeyDown={onKeyDown}>
          <Item
            words="Picture"
            kind="PNG"
            note={PICTURED[tab.value]}
            disabled={busy !== null}
            onClick={() => run("Picture", `${store.name}.${tab.value}.png`, () => shoot(store))}
          />
          <Item
            words="Steps"
            kind="CSV"
            note={`${plural(rows, "step")}, one a line${TABLED[tab.value] ?? ""}`}
            disabled={busy !== null || rows === 0}
            onClick={() => run("Steps", `${store.name}${part}.csv`, (signal) => exportCsv(store, ranges, signal))}
          />
          <Item
            words="Trace"
            kind="JSONL"
            note={`the lines of ${plural(rows, "step")}`}
            disabled={busy !== null || rows === 0}
            onClick={() =>
              run("Trace", `${store.name}${part}.steps.jsonl`, (signal) => exportJsonl(store, ranges, signal))
            }
          />
          {SERVER_FORMATS.map(({ words, kind, format, ending, note }) => (
            <Item
              key={format}
              words={words}
              kind={kind}
              note={isServed(store) ? (lacks.value[format] ?? note) : notServed(format)}
              disabled={busy !== null || !isServed(store) || format in lacks.value}
              onClick={() => run(words, `${store.name}${ending}`, (signal) => fromServer(store, format, signal))}
            />
          ))}
          {matches.value.rows && <p class="quiet">CSV and JSONL: only the steps that pass the filter.</p>}
          <Annotations store={store} />
          {busy && (
            <p role="status">
              {busy.what} …{" "}
              <button
                type="button"
                onClick={() => {
                  busy.stop.abort();
                  setBusy(null);
                }}
              >
                cancel
              </button>
            </p>
          )}
          {failed && <p role="alert">{failed}</p>}
        </div>
      )}
    </div>
  );
}

interface ItemProps {
  words: string;
  kind: string;
  note: string;
  disabled: boolean;
  onClick(): void;
}

function Item({ words, kind, note, disabled, onClick }: ItemProps) {
  return (
    <button type="button" class="export-item" disabled={disabled} onClick={onClick}>
      <span>
        {words} <span class="quiet">({kind})</span>
      </span>
      <small class="quiet">{note}</small>
    </button>
  );
}

const LISTED = 20;

function Annotations({ store }: { store: TraceStore }) {
  const { list, served, problem } = notebookOf(store).value;
  const chooser = useRef<HTMLInputElement>(null);
  return (
    <div class="export-notes">
      <strong>{plural(list.length, "annotation")}</strong>
      {served && <span class="quiet"> kept beside the trace</span>}
      <span>
        <button type="button" disabled={list.length === 0} onClick={() => saveToFile(store)}>
          save file
        </button>
        <button type="button" onClick={() => chooser.current?.click()}>
          open file
        </button>
        <label hidden>
          open file
          <input
            ref={chooser}
            type="file"
            accept=".json,application/json"
            onChange={(event) => {
              const file = event.currentTarget.files?.[0];
              if (file) void annotationsFromFile(store, file);
              event.currentTarget.value = "";
            }}
          />
        </label>
      </span>
      {problem && <p role="alert">{problem}</p>}
      <ul class="export-list">
        {list.slice(0, LISTED).map((one) => (
          <li key={`${one.step} ${one.text}`}>
            <button
              type="button"
              class="plain"
              onClick={() => {
                showTab("timeline");
                focus(rowOfStep(store, one.step));
              }}
            >
              step {count(one.step)}
            </button>{" "}
            {one.text.slice(0, 120)}
          </li>
        ))}
      </ul>
      {list.length > LISTED && <p class="quiet">… and {count(list.length - LISTED)} more</p>}
    </div>
  );
}

/** What of each view a picture holds. */
const PICTURED: Record<Tab, string> = {
  overview: "the whole tab, also what is scrolled out of view",
  timeline: "the rows in view, without the panel at the side",
  requests: "what is in view, without the panel at the side",
  statistics: "the whole tab, also what is scrolled out of view",
  compare: "the whole tab, also what is scrolled out of view",
};

/** Where the tables of the other tabs are saved. */
const TABLED: Partial<Record<Tab, string>> = {
  requests: "; requests: above their table",
  compare: "; jobs and requests: above their table",
};

async function shoot(store: TraceStore): Promise<Blob> {
  const element = document.querySelector<HTMLElement>('[role="tabpanel"]');
  if (!element) throw new Error("there is no view to show");
  const legends = [...document.querySelectorAll<HTMLElement>(".minimap, .legend")];
  const filtered = filterText.value.trim();
  const parts = [
    store.name,
    store.policy,
    TAB_TITLES[tab.value],
    stepsPictured(store),
    ...(filtered ? [`filter: ${cut(filtered, 200)}`] : []),
  ];
  const title = `${parts.join(" · ")} · Tokenyard`;
  return picture(element, { title, legends });
}

/** In words: the steps that the picture of the open tab shows. */
function stepsPictured(store: TraceStore): string {
  if (tab.value === "timeline" && matches.value.rows?.length === 0) return "no step";
  if (tab.value === "timeline") return `rows of steps ${span(store, [rowsInView()])}`;
  if (tab.value === "requests") return lanesShown() ? `steps ${span(store, [lanesInView(store.rows)])}` : "the table";
  return `steps ${span(store, scope.value ? [scope.value] : [])}`;
}

/** `120-340`: first and last step of what is exported. */
function span(store: TraceStore, ranges: Range[]): string {
  const first = ranges[0];
  const last = ranges.at(-1);
  if (!first || !last) return count(0);
  return `${store.steps.number[first.first]}-${store.steps.number[last.last]}`;
}

const MOVES: Record<string, (at: number, of: number) => number> = {
  ArrowDown: (at, of) => (at + 1) % of,
  ArrowUp: (at, of) => (at - 1 + of) % of,
  Home: () => 0,
  End: (_, of) => of - 1,
};

/** Arrows, Home and End go through what can be chosen; false if the key is another. */
function moveFocus(box: HTMLElement | null, event: KeyboardEvent): boolean {
  const next = MOVES[event.key];
  if (!next || !box) return false;
  const items = [...box.querySelectorAll<HTMLElement>(".export-menu button:not(:disabled)")];
  const at = items.indexOf(document.activeElement as HTMLElement);
  // From the button that opened it: down to the first, up to the last.
  const to = at < 0 && event.key === "ArrowUp" ? items.length - 1 : next(at, items.length);
  items[to]?.focus();
  return true;
}

function useOutside(box: { current: HTMLElement | null }, open: boolean, close: () => void): void {
  useEffect(() => {
    if (!open) return;
    const pressed = (event: PointerEvent) => {
      if (event.target instanceof Node && !box.current?.contains(event.target)) close();
    };
    document.addEventListener("pointerdown", pressed);
    return () => document.removeEventListener("pointerdown", pressed);
  }, [open]);
}
