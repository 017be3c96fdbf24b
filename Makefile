# zklock: distributed locks through ZooKeeper, for PostgreSQL 15 to 19.
#
#   make, make install    build, install; PG_CONFIG selects the server.  ASSERTIONS=yes
#                         compiles the assertions in, as all tests do.  After
#                         `make clean`.  ZOOKEEPER_LIB=st or mt is the ZooKeeper
#                         library, without threads or with (src/client/library.mk)
#   make dist             zklock-<version>.zip of what is committed
#   make demo             see it work; KEEP=1 leaves the servers running
#   make check            the tests that all need; PARTS=all is every test there is, PARTS=rest
#                         what the former leaves out, PARTS=quick takes two minutes;
#                         names of parts and TESTS= select (test/run)
#   make lint             clang-format, cppcheck, links in the texts, and who may use
#                         whom (test/rooms)
#   make warnings         gcc and clang with -Wall -Wextra -Werror
#   make bench            zklock beside everybody else, in one table, in 25 minutes; REPEAT=
#                         SECONDS= ROWS=, BASE= a commit to compare with.  ROWS=quick is
#                         what the table of README.md has, in three minutes;
#                         ROWS=others is etcd and Redis, too, in ten
#   make bench-plot       the same as a picture, build/log/bench.svg
#   make fleet            what so many servers cost an ensemble; SERVERS= SECONDS=
#   make soak             a million cycles of lock and commit, memory in a table; CYCLES=
#   make model            random sessions beside a model of their answers; SEQUENCES= SEED=
#   make chaos            faults of all kinds on six hosts; SECONDS= SEED=
#                         WORKLOADS= FAULTS=
#   make endurance        the same on six servers for HOURS= (8) in all, with nights, updates and
#                         restarts, and what is left over or grows; goes on where it was stopped
#
# The last eleven install what they need; all but chaos and endurance run in a sandbox
# (test/sandbox), these two in namespaces of their own (test/chaos/run).

EXTENSION = zklock zklock_advisory
version := $(shell sed -n "s/^default_version = '\(.*\)'/\1/p" zklock.control)
MODULE_big = zklock
OBJS = $(patsubst %.c,%.o,$(filter-out $(other_library) src/run/%,$(wildcard src/*.c src/*/*.c)))
# zklock-run, a program.  PGXS makes either a library or a PROGRAM; but it installs a script
# that was built into the same directory, and does not look at what is in it.
run_objects = $(patsubst %.c,%.o,$(wildcard src/run/*.c))
SCRIPTS_built = zklock-run
DATA = $(wildcard sql/zklock*.sql)
REGRESS = $(patsubst sql/%.sql,%,$(filter-out $(DATA),$(sort $(wildcard sql/*.sql))))
EXTRA_CLEAN = $(run_objects) build test/fuzz/build test/judge/build test/sim/build test/client/build test/bench/build test/fleet/build

PG_CONFIG ?= pg_config
# Calls from one file of ours to another go there, and not by the linker's table.
SHLIB_LINK += $(ZOOKEEPER_LINK) -Wl,-Bsymbolic-functions
# As system headers, so that -Wextra speaks of this project's code only.
PG_CPPFLAGS = -isystem $(shell $(PG_CONFIG) --includedir-server)
# Signatures of callbacks are PostgreSQL's; not every one needs all it is given.
PG_CPPFLAGS += -Wno-unused-parameter
# PostgreSQL's Assert, and the C library's assert in what does not know PostgreSQL.
PG_CPPFLAGS += $(if $(ASSERTIONS),-DUSE_ASSERT_CHECKING,-DNDEBUG)
PG_CPPFLAGS += -DZKLOCK_VERSION='"$(version)"'
# Bitcode would need clang, and nothing here is worth inlining into a query.
override with_llvm ?= no

# PGXS has a "check" of its own, and a fresh machine has no PGXS yet: leave it
# out when one of our own targets is asked for.
ours = check demo lint warnings bench bench-plot fleet chaos endurance soak model dist
ifneq ($(filter $(ours),$(MAKECMDGOALS)),)

.PHONY: $(MAKECMDGOALS)
export PG_CONFIG KEEP PARTS TESTS BASE ZOOKEEPER_LIB
check:
	@test/run
demo:
	@test/sandbox test/demo
lint:
	@test/sandbox --lint test/lint
warnings:
	@test/sandbox --lint test/warnings
bench_options = $(addprefix --repeat=,$(REPEAT)) $(addprefix --seconds=,$(SECONDS))
bench:
	@test/sandbox --bench test/bench/run $(bench_options) $(ROWS)
bench-plot:
	@test/sandbox --bench test/bench/run --plot $(bench_options)
fleet:
	@test/sandbox --bench test/fleet/run $(addprefix --servers=,$(SERVERS)) $(addprefix --seconds=,$(SECONDS))
soak:
	@test/sandbox test/soak $(CYCLES)
model:
	@test/sandbox test/model $(or $(SEQUENCES),1000) $(SEED)
chaos:
	@setpriv --pdeathsig TERM test/chaos/run chaos $(or $(SECONDS),300) $(SEED)
endurance:
	@setpriv --pdeathsig TERM test/chaos/run endurance $(or $(HOURS),8) $(SEED)
# What is committed, for PGXN and for building packages.
dist:
	@git archive --format=zip --prefix=zklock-$(version)/ --output=zklock-$(version).zip HEAD
$(filter-out $(ours),$(MAKECMDGOALS)):
	@$(MAKE) $@

else

PGXS := $(shell $(PG_CONFIG) --pgxs 2>/dev/null)
ifeq ($(wildcard $(PGXS)),)
$(error $(PG_CONFIG) knows no PGXS: install postgresql-server-dev-NN, or set PG_CONFIG (test/setup does the former))
endif

ifneq ($(filter-out clean distclean maintainer-clean installcheck uninstall,$(or $(MAKECMDGOALS),all)),)
zookeeper_cc := $(if $(filter command,$(firstword $(origin CC))),$(CC),$(shell $(PG_CONFIG) --cc))
# Where nobody says which, the one of the objects that are here: what `make` has built
# `make install` installs.
built_library := $(patsubst src/client/library_%.o,%,$(wildcard src/client/library_*.o))
ifeq ($(words $(ZOOKEEPER_LIB) $(built_library)),1)
override ZOOKEEPER_LIB := $(or $(ZOOKEEPER_LIB),$(built_library))
endif
include src/client/library.mk
other_library := $(patsubst %,src/client/library_%.c,$(filter-out $(ZOOKEEPER_LIB),st mt))
endif

include $(PGXS)

$(OBJS) $(run_objects): $(wildcard src/*/*.h)

zklock-run: $(run_objects)
	$(CC) $(CFLAGS) $^ $(LDFLAGS) $(LDFLAGS_EX) -L$(libdir) -lpq -o $@

install: install-man
uninstall: uninstall-man
.PHONY: install-man uninstall-man
install-man:
	$(MKDIR_P) '$(DESTDIR)$(mandir)/man1'
	$(INSTALL_DATA) src/run/zklock-run.1 '$(DESTDIR)$(mandir)/man1/'
uninstall-man:
	rm -f '$(DESTDIR)$(mandir)/man1/zklock-run.1'

# The objects were linked with the other library: link anew.
ifneq ($(wildcard $(other_library:.c=.o)),)
$(MODULE_big).so: other_library_goes
.PHONY: other_library_goes
other_library_goes:
	@rm -f $(other_library:.c=.o)
endif

# What the files of a folder may include: headers of the folders named here, by their
# bare names, and nothing else of ours (src/README, Rooms).  The first two do not see
# PostgreSQL, either, and run sees its client library only.
include_protocol = protocol
include_client = protocol client
include_shared = protocol shared
include_worker = protocol client shared worker
include_backend = protocol shared backend
include_functions = protocol shared backend functions
include_run = run
rooms = protocol client shared worker backend functions

server_flags := $(filter-out -I. -I./ -I$(srcdir),$(CPPFLAGS))
plain_flags := $(filter-out -I% -isystem $(includedir_server),$(CPPFLAGS))
src/protocol/%.o src/client/%.o: server_flags = $(plain_flags)
src/run/%.o: server_flags = $(plain_flags) -I$(includedir)
$(foreach room,$(rooms) run,$(eval \
	src/$(room)/%.o: override CPPFLAGS = $$(addprefix -Isrc/,$$(include_$(room))) $$(server_flags)))
src/%.o: override CPPFLAGS = $(addprefix -Isrc/,$(rooms)) $(server_flags)

endif
