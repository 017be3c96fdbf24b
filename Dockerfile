# zklock in the official image of PostgreSQL (doc/deploy.md).
#
#   docker build -t zklock .
#   docker build --build-arg PG_MAJOR=17 --build-arg DEBIAN=trixie -t zklock:17 .
#
# It is used like the official image.  A server that it initializes preloads zklock, and
# its databases have the extension; zklock.hosts says where ZooKeeper is.
ARG PG_MAJOR=18
ARG DEBIAN=bookworm

FROM postgres:${PG_MAJOR}-${DEBIAN} AS build
ARG PG_MAJOR
RUN apt-get update \
	&& apt-get install -y --no-install-recommends \
		gcc libc6-dev make "postgresql-server-dev-$PG_MAJOR" libzookeeper-mt-dev libzookeeper-st2 \
	&& rm -rf /var/lib/apt/lists/*
WORKDIR /usr/src/zklock
COPY . .
RUN make -s ZOOKEEPER_LIB=st PG_CONFIG="/usr/lib/postgresql/$PG_MAJOR/bin/pg_config" \
	&& make -s ZOOKEEPER_LIB=st PG_CONFIG="/usr/lib/postgresql/$PG_MAJOR/bin/pg_config" DESTDIR=/installed install

FROM postgres:${PG_MAJOR}-${DEBIAN}
RUN apt-get update \
	&& apt-get install -y --no-install-recommends libzookeeper-st2 \
	&& rm -rf /var/lib/apt/lists/*
COPY --from=build /installed/usr /usr
# For servers that are initialized from now on: the library, and the extension in
# template1, from which databases are made, and in the first database.
RUN echo "shared_preload_libraries = 'zklock'" >>/usr/share/postgresql/postgresql.conf.sample \
	&& echo 'for db in template1 "$POSTGRES_DB"; do psql -v ON_ERROR_STOP=1 -U "$POSTGRES_USER" -d "$db" -c "CREATE EXTENSION IF NOT EXISTS zklock"; done' \
		>/docker-entrypoint-initdb.d/zklock.sh
