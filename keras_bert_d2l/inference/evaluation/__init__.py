"""How well a model does its task: metrics, confusions and the worst mistakes."""
