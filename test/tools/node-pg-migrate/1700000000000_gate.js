const gate = require('../gate.js');

exports.up = async (pgm) => {
	await gate();
	pgm.createTable('by_node_pg_migrate', { id: 'id' });
};
