/** Bytes to lines, whatever the pieces in which the bytes come. */

const NEWLINE = 10;
const CARRIAGE_RETURN = 13;

/** `bytes` without its newline; `offset` of its first byte in the stream; `number` from 1. */
export type LineTaker = (bytes: Uint8Array, offset: number, number: number) => void;

export class LineSplitter {
  /** Bytes given so far. */
  offset = 0;
  /** Whole lines given out so far. */
  number = 0;
  private rest: Uint8Array[] = [];
  private restLength = 0;

  constructor(private readonly take: LineTaker) {}

  /** Bytes of the last, unfinished line. */
  get pending(): number {
    return this.restLength;
  }

  push(piece: Uint8Array): void {
    let start = 0;
    for (;;) {
      const end = piece.indexOf(NEWLINE, start);
      if (end < 0) break;
      this.line(piece.subarray(start, end), this.offset + start);
      start = end + 1;
    }
    if (start < piece.length) {
      // Copied: the piece may be the reader's own buffer.
      this.rest.push(piece.slice(start));
      this.restLength += piece.length - start;
    }
    this.offset += piece.length;
  }

  /** Forget the unfinished last line: `offset` is then where it began, and where to read on. */
  forget(): void {
    this.offset -= this.restLength;
    this.rest = [];
    this.restLength = 0;
  }

  /** The stream is over: what is left is a line, too. True if there was one. */
  end(): boolean {
    if (this.restLength === 0) return false;
    this.line(new Uint8Array(0), this.offset);
    return true;
  }

  private line(tail: Uint8Array, tailOffset: number): void {
    let bytes = tail;
    let offset = tailOffset;
    if (this.restLength > 0) {
      offset = tailOffset - this.restLength;
      bytes = joined([...this.rest, tail], this.restLength + tail.length);
      this.rest = [];
      this.restLength = 0;
    }
    this.number += 1;
    if (bytes.length > 0 && bytes[bytes.length - 1] === CARRIAGE_RETURN) bytes = bytes.subarray(0, bytes.length - 1);
    this.take(bytes, offset, this.number);
  }
}

export function joined(pieces: readonly Uint8Array[], length: number): Uint8Array {
  const all = new Uint8Array(length);
  let at = 0;
  for (const piece of pieces) {
    all.set(piece, at);
    at += piece.length;
  }
  return all;
}

/** True if the bytes are nothing but blanks. */
export function isBlank(bytes: Uint8Array): boolean {
  for (const byte of bytes) {
    if (byte !== 32 && (byte < 9 || byte > 13)) return false;
  }
  return true;
}
