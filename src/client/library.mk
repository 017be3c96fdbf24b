# src/client/library.mk - which ZooKeeper library is linked (src/README.client).
#
# ZOOKEEPER_LIB is st or mt; where nobody says which, st if it can be linked, else mt.  Sets
# ZOOKEEPER_LIB and ZOOKEEPER_LINK.  A library's runtime package will do, without the link
# of its -dev package; the header comes from either.  zookeeper_cc is the compiler.

# $(call zookeeper_builds,FLAGS): an empty program does, with these
zookeeper_builds = $(shell echo 'int main(void) { return 0; }' | \
	$(zookeeper_cc) -x c $(1) >/dev/null 2>&1 && echo yes)
zookeeper_header = -include zookeeper/zookeeper.h
zookeeper_try = $(if $(call zookeeper_builds,$(zookeeper_header) -o /dev/null - $(1)),$(1))
zookeeper_find = $(or $(call zookeeper_try,-lzookeeper_$(1)),$(call zookeeper_try,-l:libzookeeper_$(1).so.2))

ifneq ($(ZOOKEEPER_LIB),)
ifeq ($(filter st mt,$(ZOOKEEPER_LIB)),)
$(error ZOOKEEPER_LIB is "$(ZOOKEEPER_LIB)": it can be st or mt)
endif
ZOOKEEPER_LINK := $(call zookeeper_find,$(ZOOKEEPER_LIB))
else
# also where it was given and is empty
override ZOOKEEPER_LIB := st
ZOOKEEPER_LINK := $(call zookeeper_find,st)
ifeq ($(ZOOKEEPER_LINK),)
ZOOKEEPER_LINK := $(call zookeeper_find,mt)
ifneq ($(ZOOKEEPER_LINK),)
override ZOOKEEPER_LIB := mt
endif
endif
endif
ifeq ($(ZOOKEEPER_LINK),)
ifeq ($(call zookeeper_builds,-o /dev/null -),)
$(error "$(zookeeper_cc)" cannot build a program: install gcc and libc6-dev)
endif
ifeq ($(call zookeeper_builds,$(zookeeper_header) -fsyntax-only -),)
$(error there is no zookeeper/zookeeper.h: install libzookeeper-mt-dev)
endif
$(error cannot link libzookeeper_$(ZOOKEEPER_LIB): install libzookeeper-$(ZOOKEEPER_LIB)2)
endif
