"""Access to Kubernetes API servers on the `kubernetes` package: for executors, node discovery and TokenReview.

No module here but `kube.configuration` and `kube.connection` imports that package, and these two are imported when a
client is first used: the package costs some tenths of a second and 22 MB, which only the processes that need it pay.
"""
