import { useEffect, useState } from "preact/hooks";
import { copyText } from "./copy";
import "./export.css";

interface CopyButtonProps {
  /** What is copied: made when it is wanted. */
  text(): string;
  /** For those who do not see the sign: `Copy peak KV use`. */
  label: string;
  /** Words on the button; the sign alone without them. */
  words?: string;
}

const SHOWN_MS = 1500;

/** Copies, and says for a moment whether it did. */
export function CopyButton({ text, label, words }: CopyButtonProps) {
  const [done, setDone] = useState<"copied" | "not copied" | null>(null);
  useEffect(() => {
    if (done === null) return;
    const timer = setTimeout(() => setDone(null), SHOWN_MS);
    return () => clearTimeout(timer);
  }, [done]);
  const copy = async () => setDone((await copyText(text())) ? "copied" : "not copied");
  return (
    <button type="button" class="copy" title={label} aria-label={done ? `${label}: ${done}` : label} onClick={copy}>
      <span aria-hidden="true">{done === "copied" ? "✓" : done ? "✗" : "⧉"}</span>
      {words && <span>{done ?? words}</span>}
    </button>
  );
}
