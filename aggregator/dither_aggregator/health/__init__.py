"""How a store and its servers are: health checks, the store's status and capacity, expired metrics, and the doctor."""
