/**
 * The storage of a device's state: one record in IndexedDB, or the memory of this program.
 *
 * Each change is one transaction: it reads the state, changes it at once and writes it, so that tabs never mix. What
 * changes nothing writes nothing. The record is JSON: the state is small, and its text tells whether it has changed.
 */

import { emptyState, type State } from "./device.ts";

/** The storage of one device. */
export interface Storage {
  /** Return what `read` makes of the state, which is a copy; undefined where nothing was ever kept. */
  peek<T>(read: (state: State) => T): Promise<T | undefined>;
  /**
   * Change the state in one transaction. A `strict` one is on the disk when the promise resolves.
   *
   * Rejects with `Gone` where nothing was ever kept, unless it is to `create` it.
   */
  change<T>(change: (state: State) => T, how?: Writing): Promise<T>;
  /** Let go of the connection: the next call opens another. */
  close(): void;
}

/** How a change is written. */
export interface Writing {
  strict?: boolean;
  create?: boolean;
}

/** There is no state: nothing was kept yet, or the person has cleared it. */
export class Gone extends Error {}

/** A state that this version cannot use, and leaves as it is. */
export class StateUnusable extends Error {}

function parse(text: string | undefined): State {
  if (text === undefined) return emptyState();
  const state = JSON.parse(text) as State;
  if (state.v !== 1) throw new StateUnusable("what this device keeps is of a newer version");
  return state;
}

/** The state in memory: for Node, tests and whoever asks for it. It ends with the program. */
export class MemoryStorage implements Storage {
  text: string | undefined;

  async peek<T>(read: (state: State) => T): Promise<T | undefined> {
    return this.text === undefined ? undefined : read(parse(this.text));
  }

  async change<T>(change: (state: State) => T, { create }: Writing = {}): Promise<T> {
    if (this.text === undefined && !create) throw new Gone();
    const state = parse(this.text);
    const result = change(state);
    this.text = JSON.stringify(state);
    return result;
  }

  close(): void {}
}

const STORE = "device";
const KEY = "state";
const EMPTY = JSON.stringify(emptyState());

/** The state in the browser's database of a name, which is made when something is first kept. */
export class BrowserStorage implements Storage {
  readonly #name: string;
  #database: Promise<IDBDatabase | undefined> | undefined;

  constructor(name: string) {
    this.#name = name;
  }

  peek<T>(read: (state: State) => T): Promise<T | undefined> {
    const peeked = (state: State, kept: boolean) => (kept ? read(state) : undefined);
    return this.#open(false, (database) => database && this.#run(database, "readonly", peeked));
  }

  async change<T>(change: (state: State) => T, { strict, create }: Writing = {}): Promise<T> {
    const guarded = (state: State, kept: boolean) => {
      if (!kept && !create) throw new Gone();
      return change(state);
    };
    return this.#open(create ?? false, (database) => {
      if (!database) throw new Gone();
      return this.#run(database, "readwrite", guarded, strict);
    });
  }

  close(): void {
    const database = this.#database;
    this.#database = undefined;
    database?.then((open) => open?.close()).catch(() => {});
  }

  /** Use the database at once when it is open: it may be closed a moment later. */
  async #open<T>(create: boolean, use: (database: IDBDatabase | undefined) => T): Promise<Awaited<T>> {
    for (;;) {
      const opening = (this.#database ??= this.#request(create));
      const database = await opening.catch((error: unknown) => {
        if (this.#database == opening) this.#database = undefined; // it is tried again
        throw error;
      });
      if (this.#database != opening) continue; // it was let go of meanwhile
      if (!database) this.#database = undefined;
      if (database || !create) return await use(database);
    }
  }

  /** Open the database. Without `create`, one that is not there is not made. */
  #request(create: boolean): Promise<IDBDatabase | undefined> {
    return new Promise((resolve, reject) => {
      const request = indexedDB.open(this.#name, 1);
      let absent = false;
      request.onupgradeneeded = () => {
        absent = !create;
        if (absent)
          request.transaction!.abort(); // takes the new database back
        else request.result.createObjectStore(STORE);
      };
      request.onsuccess = () => {
        const database = request.result;
        database.onclose = database.onversionchange = () => {
          database.close();
          this.#database = undefined;
        };
        resolve(database);
      };
      request.onerror = (event) => {
        event.preventDefault();
        if (absent) resolve(undefined);
        else reject(request.error);
      };
    });
  }

  #run<T>(
    database: IDBDatabase,
    mode: IDBTransactionMode,
    change: (state: State, kept: boolean) => T,
    strict = false,
  ): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      const transaction = database.transaction(STORE, mode, { durability: strict ? "strict" : "default" });
      const store = transaction.objectStore(STORE);
      const request = store.get(KEY);
      let [result, fault]: [T | undefined, unknown] = [undefined, undefined];
      request.onsuccess = () => {
        try {
          const text = request.result as string | undefined;
          const state = parse(text);
          result = change(state, text !== undefined);
          const changed = JSON.stringify(state);
          if (mode == "readwrite" && changed != (text ?? EMPTY)) store.put(changed, KEY);
        } catch (error) {
          fault = error;
          transaction.abort();
        }
      };
      transaction.oncomplete = () => resolve(result as T);
      transaction.onabort = () => reject(fault ?? transaction.error);
    }).catch((error: unknown) => {
      this.close(); // the connection may be the fault
      throw error;
    }) as Promise<T>;
  }
}
