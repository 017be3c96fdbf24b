/*-------------------------------------------------------------------------
 *
 * hosts_backend.h
 *	  Asks the ZooKeeper servers in the connect string whether they answer, and for
 *	  their versions.
 *
 * The worker knows the server that it is connected to, and those that it has tried.  So
 * the backend asks each server by a connection of its own, with the command "srvr".
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_HOSTS_BACKEND_H
#define ZKLOCK_HOSTS_BACKEND_H

typedef enum ZkHostState
{
	ZKLOCK_HOST_ANSWERS,
	ZKLOCK_HOST_FAILS,
	ZKLOCK_HOST_SILENT,	  /* it does not answer in time */
	ZKLOCK_HOST_ALONE,	  /* it serves nobody: it has just started, or has no majority */
	ZKLOCK_HOST_STRANGE,  /* it hangs up, or answers otherwise */
	ZKLOCK_HOST_NAMELESS, /* its name cannot be looked up */
	ZKLOCK_HOST_UNKNOWN	  /* its name has not been looked up */
} ZkHostState;

typedef struct ZkHostAnswer
{
	char *host;	   /* host:port, as in the connect string */
	char *address; /* address:port; NULL: there is none */
	ZkHostState state;
	const char *text; /* what came of it, for people; bytes that others wrote */
	int version;	  /* 30800 is 3.8.0; 0: it does not say */
} ZkHostAnswer;

/*
 * Ask each address of each host, all at the same time, for zklock.connect_timeout at
 * most.  Returns the number of answers, palloc'd.  Names stand for the addresses that
 * the worker has looked up: no backend waits for a resolver.  Raises only what
 * interrupts raise.
 */
extern int zklock_hosts_probe(ZkHostAnswer **answers);

#endif /* ZKLOCK_HOSTS_BACKEND_H */
