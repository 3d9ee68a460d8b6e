/** Files and folders from this machine: dropped anywhere on the page, or picked. Nothing leaves the machine. */

import { signal } from "@preact/signals";
import { useRef } from "preact/hooks";
import { detect } from "../data";
import type { TraceFiles } from "../data/model/sources";
import { firstEngine, isOneRun } from "../state/engines";
import { open, type Target } from "../state/loader";
import { readMarks } from "../state/marks";
import { announce, failure, tab, trace } from "../state/store";
import { cut, middle } from "../text";

/** Several traces in what was dropped: the user chooses. */
const found = signal<TraceFiles[]>([]);
/** Something is held over the page. */
export const hovering = signal(false);

export async function openDropped(files: readonly File[], target: Target): Promise<void> {
  found.value = [];
  const { traces, markers, rejected } = await detect(files);
  if (markers && traces.length === 0 && trace.peek()) {
    announce(await readMarks(markers));
    return;
  }
  if (rejected.length > 0) announce(`${rejected.length} of ${files.length} files are no traces`);
  if (traces.length === 1) await open(traces[0], { target });
  else if (traces.length > 1 && target === "other") await open(traces[0], { target });
  else if (traces.length > 1 && isOneRun(traces)) await open(firstEngine(traces), { beside: traces });
  else if (traces.length > 1) {
    found.value = traces;
    trace.value = null;
  } else {
    const why = rejected
      .slice(0, 5)
      .map(({ name, why: reason }) => `${middle(name, 60)}: ${reason}`)
      .join("; ");
    failure.value = {
      title: "No trace in these files",
      detail: why || "There is no file in it.",
      advice: "Drop sched_trace.<policy>.steps.jsonl, its requests file, or the folder that holds them.",
      cancelled: false,
    };
  }
}

export function DropCard({ target }: { target: Target }) {
  const files = useRef<HTMLInputElement>(null);
  const folder = useRef<HTMLInputElement>(null);
  const take = (event: Event) => {
    const field = event.currentTarget as HTMLInputElement;
    void openDropped([...(field.files ?? [])], target).finally(() => {
      field.value = "";
    });
  };
  return (
    <section class={`card drop${hovering.value ? " hovering" : ""}`}>
      <h2>Files of yours</h2>
      <p>
        Drop <code>*.steps.jsonl</code>, with or without <code>*.requests.jsonl</code>, or a whole folder. Gzip and
        Parquet as well. Nothing is sent anywhere.
      </p>
      <div class="line">
        <button type="button" class="primary" onClick={() => files.current?.click()}>
          Choose files
        </button>
        <button type="button" onClick={() => folder.current?.click()}>
          Choose a folder
        </button>
      </div>
      <input ref={files} type="file" multiple hidden aria-label="Trace files" data-picker="files" onChange={take} />
      <input
        ref={folder}
        type="file"
        multiple
        hidden
        aria-label="Folder with traces"
        data-picker="folder"
        onChange={take}
        {...{ webkitdirectory: true }}
      />
    </section>
  );
}

/** The choice among several. */
export function Found() {
  if (found.value.length === 0) return null;
  return (
    <section class="card" aria-label="Traces found">
      <h2>{found.value.length} traces in it</h2>
      <ul class="plain-list">
        {found.value.map((files) => (
          <li key={files.steps?.path ?? files.requests?.path}>
            <button
              type="button"
              onClick={() => {
                found.value = [];
                void open(files);
              }}
            >
              Load
            </button>{" "}
            <span class="id" title={cut(files.steps?.path ?? "", 400)}>
              {middle(files.name, 80)}
            </span>
          </li>
        ))}
      </ul>
    </section>
  );
}

/** Listen on the whole window. */
export function startDropping(): void {
  const isFiles = (event: DragEvent) => event.dataTransfer?.types.includes("Files") ?? false;
  window.addEventListener("dragover", (event) => {
    if (!isFiles(event)) return;
    event.preventDefault();
    hovering.value = true;
  });
  window.addEventListener("dragleave", (event) => {
    if (event.relatedTarget === null) hovering.value = false;
  });
  window.addEventListener("drop", (event) => {
    if (!isFiles(event) || !event.dataTransfer) return;
    event.preventDefault();
    hovering.value = false;
    const target = trace.peek() && tab.peek() === "compare" ? "other" : "trace";
    void filesOf(event.dataTransfer).then((files) => openDropped(files, target));
  });
}

/** Files of a drop, those in folders included, each with its path in the folder. */
async function filesOf(transfer: DataTransfer): Promise<File[]> {
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry());
  const plain = [...transfer.files];
  if (!entries.some((entry) => entry?.isDirectory)) return plain;
  const files: File[] = [];
  for (const entry of entries) if (entry) await walk(entry, files);
  return files;
}

async function walk(entry: FileSystemEntry, into: File[]): Promise<void> {
  if (entry.isFile) {
    const file = await new Promise<File>((resolve, reject) => (entry as FileSystemFileEntry).file(resolve, reject));
    Object.defineProperty(file, "webkitRelativePath", { value: entry.fullPath.replace(/^\//, "") });
    into.push(file);
    return;
  }
  const reader = (entry as FileSystemDirectoryEntry).createReader();
  for (;;) {
    const some = await new Promise<FileSystemEntry[]>((resolve, reject) => reader.readEntries(resolve, reject));
    if (some.length === 0) return;
    for (const inner of some) await walk(inner, into);
  }
}
