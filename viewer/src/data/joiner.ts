/**
 * Lines of a steps file to whole steps, by the rules of src/tokenyard/trace/steps.py: records of a step come close to
 * each other but not always next to each other, so the last few steps are kept open.
 */

import { EVENTS } from "../generated/vocabulary";
import { FieldReader, type Parsed, parsedLine } from "./fields";
import { isBlank } from "./lines";
import type { LoadNotes, TraceStart } from "./model/trace";
import { countMore, noteBadLine } from "./notes";

const STEPS_OPEN = 8;
/** Everything the trace says about one step. */
export class Step {
  snapshot: Parsed | null = null;
  decision: Parsed | null = null;
  outcome: Parsed | null = null;
  completed: Parsed | null = null;
  lookups: Parsed[] = [];
  arrived: Parsed[] = [];
  arrivedAfter: Parsed[] = [];
  finished: Parsed[] = [];
  /** Where its lines begin in the file. */
  lines: number[] = [];

  constructor(public number: number) {}
}

export class StepJoiner {
  start: TraceStart | null = null;
  private open: Step[] = [];
  private readonly byNumber = new Map<number, Step>();
  private lastNumber: number | null = null;
  private waiting = new Step(-1);
  private readonly readers: Record<string, FieldReader>;

  constructor(
    private readonly file: string,
    private readonly notes: LoadNotes,
    /** Takes steps to which nothing more is expected, in order. */
    private readonly give: (step: Step) => void,
  ) {
    this.readers = Object.fromEntries(Object.keys(EVENTS).map((event) => [event, new FieldReader(event, notes)]));
  }

  line(bytes: Uint8Array, offset: number, number: number): void {
    if (isBlank(bytes)) return;
    const record = parsedLine(bytes, this.file, number, this.notes);
    if (record !== null) this.record(record, offset, number);
  }

  /** Take one record; `offset` and `number` are those of its line. */
  record(record: Parsed, offset: number, number: number): void {
    const event = record["event"];
    if (typeof event !== "string") {
      noteBadLine(this.notes, this.file, number, "no event");
      return;
    }
    if (!Object.hasOwn(EVENTS, event)) {
      countMore(this.notes.unknownEvents, event);
      return;
    }
    const step = this.readers[event].whole(record, "step");
    if (step === null && EVENTS[event as keyof typeof EVENTS].needsStep) {
      noteBadLine(this.notes, this.file, number, `${event} without a usable step`);
      return;
    }
    // Looked at here, since not every kind of record has it.
    this.readers[event].time(record, "ts");
    this.sort(event, record, step ?? -1, offset);
    while (this.open.length > STEPS_OPEN) this.give(this.close());
  }

  /** The steps still open, as they are; they stay open. */
  stillOpen(): readonly Step[] {
    return this.open;
  }

  /** The end of the file: give out what is open. */
  end(): void {
    const last = this.open.at(-1);
    if (last) last.arrivedAfter = this.waiting.arrived;
    while (this.open.length > 0) this.give(this.close());
  }

  private sort(event: string, record: Parsed, number: number, offset: number): void {
    switch (event) {
      case "trace_start":
        this.start ??= traceStart(record, this.readers[event]);
        return;
      case "trace_end":
        if (this.start) this.start.endedAt = this.readers[event].time(record, "ts");
        return;
      case "request_arrived":
        this.waiting.arrived.push(record);
        this.waiting.lines.push(offset);
        return;
      case "request_finished":
        this.newest().finished.push(record);
        this.newest().lines.push(offset);
        return;
      case "prefix_cache_lookup": {
        const step = this.byNumber.get(number) ?? this.newest();
        step.lookups.push(record);
        step.lines.push(offset);
        return;
      }
      case "pause_changed":
      case "cache_reset":
      case "pin_ended":
        this.newest().lines.push(offset);
        return;
      default:
        this.place(event, record, number, offset);
    }
  }

  private newest(): Step {
    return this.open.at(-1) ?? this.waiting;
  }

  private place(event: string, record: Parsed, number: number, offset: number): void {
    let step = this.byNumber.get(number);
    if (event === "step_snapshot") {
      if (step?.snapshot) {
        this.notes.duplicateRecords += 1;
        step = undefined;
      }
      step ??= this.begin(number);
      step.snapshot = record;
      step.lines.push(offset);
      return;
    }
    if (!step && this.lastNumber !== null && number <= this.lastNumber) {
      this.notes.lateRecords += 1;
      return;
    }
    step ??= this.begin(number);
    const place = event === "step_decision" ? "decision" : event === "admission_outcome" ? "outcome" : "completed";
    if (step[place]) {
      this.notes.duplicateRecords += 1;
      return;
    }
    step[place] = record;
    step.lines.push(offset);
  }

  private begin(number: number): Step {
    const step = this.waiting;
    this.waiting = new Step(-1);
    step.number = number;
    this.open.push(step);
    this.byNumber.set(number, step);
    if (this.lastNumber !== null && number <= this.lastNumber) this.notes.rowsOutOfOrder += 1;
    this.lastNumber = number;
    return step;
  }

  private close(): Step {
    const step = this.open.shift();
    if (!step) throw new Error("no step is open");
    if (this.byNumber.get(step.number) === step) this.byNumber.delete(step.number);
    return step;
  }
}

function traceStart(record: Parsed, read: FieldReader): TraceStart {
  return {
    ts: read.time(record, "ts"),
    formatVersion: read.whole(record, "format_version"),
    policy: read.text(record, "policy"),
    tokenyardVersion: read.text(record, "tokenyard_version"),
    host: read.text(record, "host"),
    model: read.text(record, "model"),
    gpu: read.text(record, "gpu"),
    blockSize: read.whole(record, "block_size"),
    bytesPerBlock: read.whole(record, "bytes_per_block"),
    everyN: read.whole(record, "every_n"),
    maxSteps: read.whole(record, "max_steps"),
    maxIdsPerStep: read.whole(record, "max_ids_per_step"),
    requestRecords: read.flag(record, "request_records"),
    clockZero: read.time(record, "clock_zero"),
    clockSpeed: read.time(record, "clock_speed"),
    warmup: read.time(record, "warmup"),
    endedAt: null,
    config: record["config"] ?? null,
  };
}
