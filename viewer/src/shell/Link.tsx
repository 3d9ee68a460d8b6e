import type { ComponentChildren } from "preact";

interface Props {
  onClick(): void;
  title?: string;
  children: ComponentChildren;
}

/** A button within a sentence: its words flow with the others, which those of a `<button>` do not. */
export function Link({ onClick, title, children }: Props) {
  return (
    <span
      role="button"
      tabIndex={0}
      class="link"
      {...(title ? { title } : {})}
      onClick={onClick}
      onKeyDown={(event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        onClick();
      }}
    >
      {children}
    </span>
  );
}
