/** Where the page begins. */

import { render } from "preact";
import { App } from "./shell/App";
import { startTheme } from "./state/theme";
import "./theme.css";

startTheme();
const root = document.getElementById("app");
if (root) render(<App />, root);
