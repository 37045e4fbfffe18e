model --diff glm-4.5
