/** Light or dark: the system's choice until the user makes one, which the browser keeps; an address that is shared has none. */

import { effect } from "@preact/signals";
import { cssVariables, type ThemeName } from "../palette";
import { systemTheme, themeChoice, themeName } from "./store";

const KEY = "tokenyard-theme";

/** Where a browser keeps nothing, as for some files, it is for the page that is open. */
function kept(): ThemeName | null {
  try {
    const name = localStorage.getItem(KEY);
    return name === "light" || name === "dark" ? name : null;
  } catch {
    return null;
  }
}

export function chooseTheme(name: ThemeName): void {
  themeChoice.value = name;
  try {
    localStorage.setItem(KEY, name);
  } catch {
    // As above.
  }
}

/** Follow the system, and put the colours on the root element. */
export function startTheme(): void {
  themeChoice.value = kept() ?? "system";
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
