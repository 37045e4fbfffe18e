model --diff glm-4.5 deepseek-v3.2
