"""Platform of one machine: `windtunnel-server up`, the demo, and how a running platform is found."""
