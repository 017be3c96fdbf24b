// A migration that has begun says so, and ends when the gate is open: for all tools alike.
const fs = require('fs');
const gate = process.env.GATE;

module.exports = async () => {
	fs.writeFileSync(`${gate}/started.${process.env.WHO}`, '');
	while (!fs.existsSync(`${gate}/open`)) {
		await new Promise((resolve) => setTimeout(resolve, 20));
	}
};
