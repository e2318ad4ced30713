# The public images of docker-compose.yml, made of Debian's packages where Docker Hub cannot be reached.

FROM debian:13.8-slim AS postgres
RUN echo "deb [check-valid-until=no] http://deb.debian.org/debian forky main" > /etc/apt/sources.list.d/forky.list \
  && apt-get update \
  && apt-get install --yes --no-install-recommends postgresql-18 \
  && rm -rf /var/lib/apt/lists/* /var/lib/postgresql/18 \
  && install --directory --owner=postgres --group=postgres --mode=3777 /var/run/postgresql
ENV LANG=C.UTF-8 \
    PATH=/usr/lib/postgresql/18/bin:$PATH \
    PGDATA=/var/lib/postgresql/18/docker
COPY postgres-entrypoint.sh /
VOLUME /var/lib/postgresql
STOPSIGNAL SIGINT
ENTRYPOINT ["/postgres-entrypoint.sh"]
CMD ["postgres", "-c", "listen_addresses=*"]

FROM debian:13.8-slim AS caddy
RUN apt-get update \
  && apt-get install --yes --no-install-recommends ca-certificates caddy \
  && rm -rf /var/lib/apt/lists/*
ENV XDG_CONFIG_HOME=/config \
    XDG_DATA_HOME=/data
CMD ["caddy", "run", "--config", "/etc/caddy/Caddyfile", "--adapter", "caddyfile"]
