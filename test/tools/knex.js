// A program that locks for itself: knex's own lock is a row in a table of each server.
const knex = require('knex')({ client: 'pg', connection: { host: process.env.PGHOST, port: process.env.PGPORT, user: process.env.PGUSER, database: process.env.PGDATABASE } });
const gate = require('./gate.js');

knex.transaction(async (trx) => {
	await trx.raw('SELECT pg_advisory_xact_lock(?)', [4711]);
	await gate();
	await trx.schema.createTable('by_knex', (table) => table.increments());
}).then(() => knex.destroy(), (error) => { console.error(error.message); process.exit(1); });
