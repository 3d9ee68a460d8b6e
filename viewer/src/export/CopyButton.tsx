import { useEffect, useState } from "preact/hooks";
import { copyText } from "./copy";
import "./export.css";

interface CopyButtonProps {
  /** What is copied: made when it is wanted. */
  text(): string;
  /** For users who do not see the sign: `Copy peak KV use`. */
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
      <Sign done={done} />
      {words && <span>{done ?? words}</span>}
    </button>
  );
}

/** Two sheets; a tick or a cross once it is done. */
function Sign({ done }: { done: "copied" | "not copied" | null }) {
  const shape =
    done === "copied" ? "M2 9l4 4 8-10" : done ? "M3 3l10 10M13 3L3 13" : "M2.5 5.5h8v8h-8zM5.5 5.5v-3h8v8h-3";
  return (
    <svg
      width="14"
      height="14"
      viewBox="0 0 16 16"
      fill="none"
      stroke="currentColor"
      stroke-width="1.4"
      aria-hidden="true"
    >
      <path d={shape} />
    </svg>
  );
}
