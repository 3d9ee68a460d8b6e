/** Which of the dropped files belong together, and what each of them is. */

import { bytesOf, isGzip, isParquet, isZstd, packedBlob, unpacked } from "./bytes";
import { objectOf } from "./fields";
import type { TraceFiles, TraceListing, TraceSource } from "./model/sources";
import { parquetKind } from "./parquet";

const NAMED = /^(?<name>.*?)\.?(?<kind>steps|requests)\.(?:jsonl(?:\.gz)?|parquet)$/i;
const PROBE_BYTES = 256 * 1024;
const LINES_PROBED = 20;
const STEP_EVENT =
  /^(?:step_snapshot|step_decision|prefix_cache_lookup|trace_start|admission_outcome|request_arrived|request_finished|step_completed)$/;

type Kind = "steps" | "requests" | "markers";

/** Sort files into traces, by content first: a name may lie. Annotations and other files are reported as no trace. */
export async function detect(files: readonly File[]) {
  const traces = new Map<string, TraceFiles>();
  const rejected: { name: string; why: string }[] = [];
  let markers: TraceSource | null = null;
  for (const file of files) {
    const path = file.webkitRelativePath || file.name;
    const source: TraceSource = { kind: "file", file, path };
    const kind = await kindOf(source).catch((error: unknown) => String(error));
    if (kind === "markers") markers = source;
    else if (kind !== "steps" && kind !== "requests") {
      rejected.push({ name: path, why: kind });
    } else place(traces, kind, source);
  }
  return { traces: joinedUp([...traces.values()]).map((files) => ({ ...files, markers })), markers, rejected };
}

function place(traces: Map<string, TraceFiles>, kind: "steps" | "requests", source: TraceSource): void {
  const folder = source.path.slice(0, source.path.lastIndexOf("/") + 1);
  const base = source.path.slice(folder.length);
  const name = base.match(NAMED)?.groups?.["name"] ?? base.replace(/\.(jsonl|json|gz|parquet)$/gi, "");
  let key = folder + name;
  // Two files of one kind under one name, a .gz beside its original: the first one counts as the trace of that name.
  while (traces.get(key)?.[kind]) key += "′";
  const trace = traces.get(key) ?? { name: nameOf(folder, name), steps: null, requests: null };
  trace[kind] = source;
  traces.set(key, trace);
}

/** One steps file and one requests file with unlike names belong together all the same. */
function joinedUp(traces: TraceFiles[]): TraceFiles[] {
  const [first, second] = traces;
  if (traces.length === 2 && !first.requests !== !second.requests && !first.steps !== !second.steps) {
    const steps = first.steps ? first : second;
    return [{ ...steps, requests: first.requests ?? second.requests }];
  }
  return traces;
}

/** `run1/sched_trace.fcfs` -> `run1`; without a folder the name itself. */
function nameOf(folder: string, name: string): string {
  const parent = folder.split("/").filter(Boolean).at(-1);
  return parent ?? (name.replace(/^sched_trace\.?/, "") || "trace");
}

/** The kind of a file, or a sentence that says why it is no trace. */
async function kindOf(source: Extract<TraceSource, { kind: "file" }>): Promise<string> {
  const { file, path } = source;
  if (isZstd(path)) {
    return "compressed by zstd, which browsers cannot read: open it with `tokenyard view`, or unpack it first";
  }
  if (file.size === 0) return "an empty file";
  if (isParquet(path)) {
    return (await parquetKind(source)) ?? "a Parquet file, but not one that `tokenyard convert` made";
  }
  const packed = isGzip(path) || (await packedBlob(file));
  const text = await head(packed ? unpacked(bytesOf(file)) : bytesOf(file.slice(0, PROBE_BYTES)));
  return kindOfText(text) ?? "no trace: none of its first lines is a step or a request record";
}

/** The kind by the first records of a text. */
export function kindOfText(text: string): Kind | null {
  let probed = 0;
  for (const line of text.split("\n")) {
    if (line.trim() === "") continue;
    probed += 1;
    if (probed > LINES_PROBED) break;
    const record = objectOf(line) ?? opening(line);
    if (!record) continue;
    if (typeof record["event"] === "string" && STEP_EVENT.test(record["event"])) return "steps";
    if (!("event" in record) && "req_id" in record && "step" in record) return "requests";
    if ("time" in record && "text" in record) return "markers";
  }
  return null;
}

/** The first fields of a line that the probe cuts off: an id alone may be longer than what is probed. */
function opening(line: string): Record<string, unknown> | null {
  const found = /^\s*\{((?:\s*"\w+"\s*:\s*(?:"\w*"|[-+.\w]+)\s*,)+)\s*"(req_id)?/.exec(line.slice(0, 1_000));
  if (!found) return null;
  const record = objectOf(`{${found[1].replace(/,\s*$/, "")}}`);
  return record && found[2] ? { ...record, req_id: "" } : record;
}

async function head(stream: ReadableStream<Uint8Array>): Promise<string> {
  const reader = stream.getReader();
  const decoder = new TextDecoder();
  let text = "";
  try {
    while (text.length < PROBE_BYTES) {
      const { done, value } = await reader.read();
      if (done) break;
      text += decoder.decode(value, { stream: true });
    }
  } catch {
    // A damaged file: what came before the damage may tell.
  } finally {
    void reader.cancel().catch(() => undefined);
  }
  return text;
}

// -------------------------------------------------------------------------------------------------- the server's list

const GPU_NAMES: [RegExp, string][] = [
  [/(?:^|[_\-\s.])a100(?:$|[_\-\s.])/i, "A100"],
  [/(?:^|[_\-\s.])h100(?:$|[_\-\s.])/i, "H100"],
  [/(?:^|[_\-\s.])h200(?:$|[_\-\s.])/i, "H200"],
  [/(?:^|[_\-\s.])b200(?:$|[_\-\s.])/i, "B200"],
  [/(?:^|[_\-\s.])(?:rtx)?5090(?:$|[_\-\s.])/i, "5090"],
  [/(?:^|[_\-\s.])l40s(?:$|[_\-\s.])/i, "L40S"],
  [/(?:^|[_\-\s.])cpu[_-]offload(?:$|[_\-\s.])/i, "CPU_OFFLOAD"],
];

/** The GPU that a trace's name tells, or "". */
export function gpuOfName(name: string): string {
  return GPU_NAMES.find(([pattern]) => pattern.test(name))?.[1] ?? "";
}

/** Rows of GET /api/traces; what is no trace is left out. */
export function listings(json: unknown): TraceListing[] {
  if (!Array.isArray(json)) return [];
  return json.flatMap((item: unknown) => {
    if (typeof item !== "object" || item === null) return [];
    const row = item as Record<string, unknown>;
    const name = typeof row["name"] === "string" ? row["name"] : "";
    const steps = firstPath(row["steps"]);
    const requests = firstPath(row["requests"]);
    const markers = firstPath(row["markers"]);
    if (!steps && !requests) return [];
    const number = (key: string) => (typeof row[key] === "number" ? row[key] : null);
    return [
      {
        name,
        date: typeof row["date"] === "string" ? row["date"] : "",
        gpu: (typeof row["gpu"] === "string" && row["gpu"]) || gpuOfName(name),
        policy: typeof row["policy"] === "string" ? row["policy"] : "",
        model: typeof row["model"] === "string" ? row["model"] : "",
        stepsMb: number("steps_mb"),
        requestsMb: number("requests_mb"),
        run: typeof row["run"] === "string" ? row["run"] : "",
        rank: number("rank"),
        partial: row["partial"] === true,
        files: {
          name: name || "trace",
          steps: steps ? served(steps, number("steps_bytes")) : null,
          requests: requests ? served(requests, number("requests_bytes")) : null,
          markers: markers ? served(markers) : null,
        },
      },
    ];
  });
}

function firstPath(value: unknown): string | null {
  const path: unknown = Array.isArray(value) ? value[0] : value;
  return typeof path === "string" && path !== "" ? path : null;
}

/** A file of our own server; what browsers cannot unpack is unpacked there. */
export function served(path: string, bytes: number | null = null): TraceSource {
  const decode = isZstd(path) ? "&decode=1" : "";
  return {
    kind: "url",
    url: `/api/file?path=${encodeURIComponent(path)}${decode}`,
    path,
    bytes: decode ? null : bytes,
  };
}
