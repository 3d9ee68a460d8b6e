/** What request records add to spans beyond what the queues do. */

import { MISSING } from "./model/columns";
import type { Spans } from "./model/lives";
import { RECORD_FLAGS, type RecordTable } from "./model/requests";

/** Makes `decodeFrom` exact: by document 000 a request prefills while num_computed_tokens < num_prompt_tokens. */
export class SpanRefiner {
  /** Per request: the span that the last row looked at belongs to, or the one after it. */
  private readonly at: Int32Array;
  private readonly settled: Uint8Array;

  constructor(
    private readonly spans: Spans,
    private readonly records: RecordTable,
  ) {
    this.at = spans.starts.slice(0, spans.starts.length - 1);
    this.settled = new Uint8Array(spans.first.length);
  }

  /** Look at the records of a row; rows come in order. */
  row(row: number): void {
    const { records } = this;
    const end = records.first[row] + records.num[row];
    for (let record = records.first[row]; record < end; record++) {
      if (records.flags[record] & RECORD_FLAGS.running) this.record(row, record);
    }
  }

  private record(row: number, record: number): void {
    const { spans, records, settled } = this;
    const request = records.request[record];
    const stop = spans.starts[request + 1];
    let at = this.at[request];
    while (at < stop && spans.last[at] < row) at++;
    this.at[request] = at;
    if (!(at < stop) || spans.first[at] > row || settled[at]) return;
    const computed = records.computedTokens[record];
    const prompt = records.promptTokens[record];
    if (computed === MISSING || prompt === MISSING) return;
    if (computed >= prompt) {
      spans.decodeFrom[at] = row;
      settled[at] = 1;
    } else {
      spans.decodeFrom[at] = Math.max(spans.decodeFrom[at], row + 1);
    }
  }
}
