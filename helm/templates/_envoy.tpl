{{/*
Envoy's bootstrap in front of a group of cache nodes. Call with root and zone.
A key is the raw target, to its end: nothing on the way may merge slashes, resolve dots or decode, or one object would
be served for another. Maglev, for keys stay where they are when a node goes, and are spread evenly.
*/}}
{{- define "windtunnel.envoyBootstrap" -}}
{{- $v := .root.Values.scs -}}
{{- $nodes := printf "%s-scs%s-nodes.%s.svc.%s" (include "windtunnel.fullname" .root) (empty .zone | not | ternary (printf "-%s" .zone) "") .root.Release.Namespace .root.Values.clusterDomain -}}
admin:
  address: {socket_address: {address: 127.0.0.1, port_value: {{ add1 $v.envoy.adminPort }}}}
overload_manager:
  resource_monitors:
    - name: envoy.resource_monitors.global_downstream_max_connections
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.resource_monitors.downstream_connections.v3.DownstreamConnectionsConfig
        max_active_downstream_connections: 20000
static_resources:
  listeners:
    - name: scs
      address: {socket_address: {address: 0.0.0.0, port_value: {{ $v.envoy.port }}}}
      per_connection_buffer_limit_bytes: 1048576
      filter_chains:
        - filters:
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
                stat_prefix: scs
                normalize_path: false
                merge_slashes: false
                path_with_escaped_slashes_action: KEEP_UNCHANGED
                use_remote_address: true
                skip_xff_append: true
                generate_request_id: false
                server_header_transformation: PASS_THROUGH
                max_request_headers_kb: 48
                request_headers_timeout: 10s
                stream_idle_timeout: 60s
                common_http_protocol_options: {idle_timeout: 75s}
                route_config:
                  name: scs
                  virtual_hosts:
                    - name: scs
                      domains: ["*"]
                      routes:
                        - match: {prefix: /v1/objects/}
                          route:
                            cluster: scs
                            # An object may be large; what stalls is ended by the idle time.
                            timeout: 0s
                            hash_policy: [{header: {header_name: ":path"}}]
                            # Whoever stands in for a node that is away; without the predicate the key leads back to it.
                            # Each further choice is a draw among all nodes: of two, so many all but never miss the other.
                            retry_policy:
                              retry_on: connect-failure
                              num_retries: 1
                              host_selection_retry_max_attempts: 40
                              retry_host_predicate:
                                - name: envoy.retry_host_predicates.previous_hosts
                                  typed_config:
                                    "@type": type.googleapis.com/envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate
                http_filters:
                  - name: envoy.filters.http.router
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
                      suppress_envoy_headers: true
    # Probes and Prometheus see this much of the admin pages and no more.
    - name: looking
      address: {socket_address: {address: 0.0.0.0, port_value: {{ $v.envoy.adminPort }}}}
      filter_chains:
        - filters:
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
                stat_prefix: looking
                route_config:
                  name: looking
                  virtual_hosts:
                    - name: looking
                      domains: ["*"]
                      routes:
                        - {match: {path: /ready}, route: {cluster: admin}}
                        - {match: {path: /stats/prometheus}, route: {cluster: admin}}
                http_filters:
                  - name: envoy.filters.http.router
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
  clusters:
    - name: scs
      type: STRICT_DNS
      connect_timeout: 1s
      lb_policy: MAGLEV
      maglev_lb_config: {table_size: {{ $v.envoy.tableSize }}}
      # With no node well, a quick 503 sends the reader to the origin; asking the sick would make it wait first.
      common_lb_config: {healthy_panic_threshold: {value: 0}}
      health_checks:
        - timeout: 2s
          interval: 5s
          # Else a cluster that was quiet when it was first looked at is looked at once a minute.
          no_traffic_interval: 5s
          unhealthy_threshold: 2
          healthy_threshold: 1
          http_health_check: {path: /readyz}
      # A node that does not even answer the door is left alone before its next check; what nodes say ejects nobody.
      outlier_detection:
        split_external_local_origin_errors: true
        consecutive_local_origin_failure: 3
        enforcing_consecutive_5xx: 0
        enforcing_success_rate: 0
        base_ejection_time: 10s
        max_ejection_percent: 50
      circuit_breakers:
        thresholds: [{max_connections: 8192, max_pending_requests: 8192, max_requests: 16384}]
      typed_extension_protocol_options:
        envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
          "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
          # Shorter than the cache's own, so that no request meets a connection that is just being closed.
          common_http_protocol_options: {idle_timeout: 60s}
          explicit_http_config: {http_protocol_options: {}}
      load_assignment:
        cluster_name: scs
        endpoints:
          - lb_endpoints:
              - endpoint: {address: {socket_address: {address: {{ $nodes }}, port_value: {{ $v.port }}}}}
    - name: admin
      type: STATIC
      connect_timeout: 1s
      load_assignment:
        cluster_name: admin
        endpoints:
          - lb_endpoints:
              - endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: {{ add1 $v.envoy.adminPort }}}}}
{{- end }}
