/** Counting what a reader could not use. */

import type { LineSplitter } from "./lines";
import type { LoadNotes } from "./model/trace";

const BAD_LINES_KEPT = 20;

export function newNotes(): LoadNotes {
  return {
    badLines: 0,
    firstBadLines: [],
    unknownEvents: {},
    droppedFields: {},
    duplicateRecords: 0,
    lateRecords: 0,
    rowsOutOfOrder: 0,
    requestRecords: 0,
    unmatchedRequestRecords: 0,
    longTexts: 0,
    cutOff: false,
    sentences: [],
  };
}

export function noteBadLine(notes: LoadNotes, file: string, line: number, problem: string): void {
  notes.badLines += 1;
  if (notes.firstBadLines.length < BAD_LINES_KEPT) notes.firstBadLines.push({ file, line, problem });
}

/** End a stream of lines: what is left of it is a line, too, or, if it cannot be read, one that is cut off. */
export function endLines(splitter: LineSplitter, notes: LoadNotes): void {
  const before = notes.badLines;
  notes.cutOff ||= splitter.end() && notes.badLines > before;
}

/** Add to `counts[key]`. Keys come from traces: "constructor" must not find a method, "__proto__" must not set one. */
export function countMore(counts: Record<string, number>, key: string, more = 1): void {
  const value = (Object.hasOwn(counts, key) ? counts[key] : 0) + more;
  Object.defineProperty(counts, key, { value, writable: true, enumerable: true, configurable: true });
}

/** Add what another reader noted; its line numbers are raised by `linesBefore`. */
export function addNotes(notes: LoadNotes, more: LoadNotes, linesBefore = 0): void {
  notes.badLines += more.badLines;
  for (const bad of more.firstBadLines) {
    if (notes.firstBadLines.length < BAD_LINES_KEPT) {
      notes.firstBadLines.push({ ...bad, line: bad.line + linesBefore });
    }
  }
  for (const [into, from] of [
    [notes.unknownEvents, more.unknownEvents],
    [notes.droppedFields, more.droppedFields],
  ] as const) {
    for (const [key, count] of Object.entries(from)) countMore(into, key, count);
  }
  notes.duplicateRecords += more.duplicateRecords;
  notes.lateRecords += more.lateRecords;
  notes.requestRecords += more.requestRecords;
  notes.unmatchedRequestRecords += more.unmatchedRequestRecords;
  notes.longTexts += more.longTexts;
  notes.cutOff ||= more.cutOff;
  notes.sentences.push(...more.sentences);
}
