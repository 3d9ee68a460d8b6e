/** Light or dark: the system's choice until the user makes one, which is kept in the address. */

import { effect } from "@preact/signals";
import { cssVariables } from "../palette";
import { systemTheme, themeName } from "./store";

/** Follow the system, and put the colours on the root element. */
export function startTheme(): void {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const follow = () => {
    systemTheme.value = dark.matches ? "dark" : "light";
  };
  follow();
  dark.addEventListener("change", follow);
  effect(() => {
    const root = document.documentElement;
    root.dataset["theme"] = themeName.value;
    for (const [name, value] of Object.entries(cssVariables(themeName.value))) root.style.setProperty(name, value);
  });
}
