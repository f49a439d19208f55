'use strict';
// SQLite databases on a fast tier, for better-sqlite3.
//
//   const tiersmith = require('tiersmith');
//   const db = tiersmith.open('app.db');
//
// Attach the database first, with the program: tiersmith attach app.db --fast /mnt/pmem0.
// better-sqlite3 takes no URI, so Tiersmith becomes the default of its SQLite. A database that was
// never attached is opened as ever. One process has an attached database open; worker threads may.

const path = require('path');

const EXTENSION = path.join(__dirname, 'libtiersmith_sqlite.so');

let registered = false;

/// Gives better-sqlite3's SQLite the VFS, once. `Database` is the class, if not the installed one.
function register(Database = require('better-sqlite3')) {
  if (!registered) {
    process.env.TIERSMITH_SQLITE_DEFAULT = '1';
    const loader = new Database(':memory:');
    try {
      loader.loadExtension(EXTENSION);
    } finally {
      loader.close();
    }
    registered = true;
  }
  return Database;
}

/// Opens a database: as `new Database(filename, options)` of better-sqlite3.
function open(filename, options) {
  const Database = register();
  return new Database(filename, options);
}

module.exports = { open, register };
