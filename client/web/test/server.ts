/** A server on loopback that answers by a script. */

import { createServer, type IncomingMessage, type Server } from "node:http";
import type { AddressInfo } from "node:net";

export interface Request {
  headers: IncomingMessage["headers"];
  text: string;
  upload: string;
  groups: { metric: string; plan: string; reports: unknown[] }[];
}

/** An answer of the scripted server: a status, and the fields of its document; "lost" closes the connection. */
export type Script = "accept" | "lost" | { status: number; body?: string; headers?: Record<string, string> };

/** The clock of every answer: a device notes how far its own is from it, and tests compare such notes. */
const BEGUN = new Date().toUTCString();

/** A server that takes uploads on loopback, and answers each by the next line of its script; then it accepts. */
export class ScriptedServer {
  readonly requests: Request[] = [];
  readonly script: Script[] = [];
  readonly #server: Server;

  private constructor(server: Server) {
    this.#server = server;
  }

  static async listen(): Promise<ScriptedServer> {
    const server = createServer();
    const scripted = new ScriptedServer(server);
    server.on("request", (request, response) => {
      let text = "";
      request.on("data", (chunk: Buffer) => (text += chunk.toString()));
      request.on("end", () => {
        const document = JSON.parse(text);
        scripted.requests.push({ headers: request.headers, text, upload: document.upload, groups: document.groups });
        const line = scripted.script.shift() ?? "accept";
        if (line == "lost") request.socket.destroy();
        else if (line == "accept") {
          const count = document.groups.length;
          response.writeHead(202, { "Content-Type": "application/json", Date: BEGUN });
          response.end(JSON.stringify({ upload: document.upload, accepted: count, duplicate: false, rejected: [] }));
        } else {
          response.writeHead(line.status, line.headers);
          response.end(line.body ?? "");
        }
      });
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    return scripted;
  }

  get endpoint(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  close(): void {
    this.#server.closeAllConnections();
    this.#server.close();
  }
}

/** Return the body of a problem document of ours. */
export function problem(word: string, more: object = {}): string {
  return JSON.stringify({ type: `urn:dither:problem:${word}`, ...more });
}
