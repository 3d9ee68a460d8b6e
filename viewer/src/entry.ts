/** The one script of the page: in a document it is the page, in a worker it reads files. Nothing else may run on import. */

import { serveAsWorker } from "./data/worker";
import { startPage } from "./main";

if (typeof document === "undefined") serveAsWorker();
else startPage();
