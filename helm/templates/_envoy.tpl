{{/*
Bootstrap configuration of Envoy in front of a group of cache nodes. Call with root and zone.
A cache key is the raw request target: nothing may merge slashes, resolve dots or decode, or a wrong object would be served.
Maglev hashing spreads keys evenly, and keeps other keys in place when a node is lost.
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
                            # Objects may be large; stream_idle_timeout ends stalled transfers.
                            timeout: 0s
                            hash_policy: [{header: {header_name: ":path"}}]
                            # Retry on another node when a node is away; without the predicate the key selects the same node.
                            # Each attempt selects a random node: with two nodes, 40 attempts practically always find the other.
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
    # Probes and Prometheus may read these two admin pages only.
    - name: admin
      address: {socket_address: {address: 0.0.0.0, port_value: {{ $v.envoy.adminPort }}}}
      filter_chains:
        - filters:
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
                stat_prefix: admin
                route_config:
                  name: admin
                  virtual_hosts:
                    - name: admin
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
      # If no node is healthy, a quick 503 sends the reader to the origin; requests to unhealthy nodes would delay it.
      common_lb_config: {healthy_panic_threshold: {value: 0}}
      health_checks:
        - timeout: 2s
          interval: 5s
          # By default a cluster without traffic is checked once a minute only.
          no_traffic_interval: 5s
          unhealthy_threshold: 2
          healthy_threshold: 1
          http_health_check: {path: /readyz}
      # A node that refuses connections is ejected before its next health check; HTTP status codes eject no node.
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
          # Shorter than the cache service's idle timeout, so that no request is sent on a connection that is being closed.
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
