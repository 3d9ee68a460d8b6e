/** Where the page begins. */

import { render } from "preact";
import { App } from "./shell/App";

const root = document.getElementById("app");
if (root) render(<App />, root);
