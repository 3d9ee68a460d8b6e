/** Words and numbers for labels. Ids are foreign text: they are shortened here, and shown as text where they are drawn. */

/** 12,031; a dash if it is not known. */
export function count(value: number | null): string {
  return value === null ? "-" : Math.round(value).toLocaleString("en-US");
}

/** 950, 342K, 1.5M: as `short_count` of src/tokenyard/units.py. */
export function shortCount(value: number): string {
  let number = value;
  let unit = "";
  for (const larger of ["K", "M", "G"]) {
    if (number < 999.5) break;
    number /= 1_000;
    unit = larger;
  }
  const text = unit && number < 9.95 ? number.toFixed(1).replace(/\.0$/, "") : Math.round(number).toString();
  return text + unit;
}

/** Binary gigabytes, as memory is sold: `20GB`, `0.5GB`. */
export function gigabytes(bytes: number): string {
  const size = bytes / 2 ** 30;
  return `${size >= 9.95 ? size.toFixed(0) : size.toFixed(1)}GB`;
}

/** `510 MB`, `10.1 GB`. */
export function memory(bytes: number): string {
  const megabytes = bytes / 2 ** 20;
  return megabytes < 1024 ? `${megabytes.toFixed(0)} MB` : `${(megabytes / 1024).toFixed(1)} GB`;
}

/** Characters that would turn the line around or hide (controls, bidirectional marks) made visible. */
export function plain(text: string): string {
  return text.replace(/[\p{Cc}\p{Cf}\p{Co}\p{Cn}\u2028\u2029]/gu, "\ufffd");
}

/** At most `width` characters, shortened in the middle: beginnings and ends of ids distinguish them. */
export function shortId(id: string, width = 24): string {
  const text = plain(id.length > 4 * width ? `${id.slice(0, 2 * width)}${id.slice(-2 * width)}` : id);
  if (id.length <= width) return text;
  const tail = Math.floor((width - 1) / 2);
  return `${text.slice(0, width - 1 - tail)}…${text.slice(-tail)}`;
}

const TURN = /^(.*?)[_-]t(\d+)$/;

/** Job and turn of a request as pills name them: `swe_0008_t9` -> `j0008`, `t9`. */
export function jobAndTurn(requestId: string, jobId: string | null): { job: string; turn: string | null } {
  const match = requestId.length < 512 ? TURN.exec(requestId) : null;
  const job = jobId ?? match?.[1] ?? null;
  // A request of no job is named by its own id.
  if (job === null) return { job: shortId(requestId, 18), turn: null };
  const turn = match && (jobId === null || requestId.startsWith(jobId)) ? `t${match[2]}` : null;
  return { job: shortJob(job), turn: turn ?? (jobId === requestId ? null : tailOf(requestId, job)) };
}

/** `job_0008`, `swe_0008`, `agent_0008` -> `j0008`; what is no name and number stays. */
export function shortJob(job: string): string {
  const match = job.length < 512 ? /^[A-Za-z]+[_-](\d.*)$/.exec(job) : null;
  return match ? `j${shortId(match[1], 14)}` : shortId(job, 16);
}

/** What a request's id has beyond its job's. */
function tailOf(requestId: string, job: string): string {
  const tail = requestId.startsWith(job) ? requestId.slice(job.length).replace(/^[_\-.:]+/, "") : requestId;
  return shortId(tail || requestId, 14);
}
