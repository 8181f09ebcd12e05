"""All measures, in the order in which they run. A new one is a class in a module here and a line in its MEASURES."""

from . import assign, cluster, core, durable, payload, python_client, replicated, swarm

ALL = [*assign.MEASURES, *payload.MEASURES, *python_client.MEASURES, *core.MEASURES,
       *durable.MEASURES, *replicated.MEASURES, *cluster.MEASURES, *swarm.MEASURES]
